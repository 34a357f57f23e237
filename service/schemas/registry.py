"""Asks a schema registry, with confluent-kafka's own client: TLS, credentials, retries and several addresses are its.

An id's schema never changes, so each is asked for once in a process' life. That there is none is remembered as well: one verdict in a
process for all records of that id.
"""

import base64
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

from service.schemas.proto_text import NotCompiledError, descriptors
from service.schemas.writer import RegistryAwayError, RegistryRefusedError, WriterSchema

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

# The registry's own code for an id that it does not have. A proxy or another server answers 404 without it.
_NO_SUCH_SCHEMA = 40403
_PASSING = frozenset({408, 425, 429})
_MAX_REFERENCES = 1_000


class RegistrySchemas(Mapping[int, WriterSchema | None]):
    """The schemas of one registry by id: asked for when first looked up."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        """`options`: of the client, `url` among them. Raises RegistryRefusedError where the client cannot be made of them."""
        self.client = registry_client(options)
        self._where = str(options["url"])
        self._known: dict[int, WriterSchema | None] = {}
        self._lock = threading.Lock()

    def __getitem__(self, schema_id: int) -> WriterSchema | None:
        """Raises RegistryAwayError, RegistryRefusedError."""
        try:
            return self._known[schema_id]
        except KeyError:
            with self._lock:
                found = self._known[schema_id] = self.fetch(schema_id)
            return found

    def __iter__(self) -> Iterator[int]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)

    def fetch(self, schema_id: int) -> WriterSchema | None:
        """Ask for a schema, whatever is known. Raises RegistryAwayError, RegistryRefusedError."""
        from confluent_kafka.schema_registry.error import SchemaRegistryError

        with registry_errors(self._where):
            try:
                found = self.client.get_schema(schema_id)
                # Only a descriptor can be used of Protobuf, and not every registry can give one.
                if found.schema_type == "PROTOBUF":
                    self.client.clear_caches()  # type: ignore[no-untyped-call] # it would give the same form again
                    found = self.client.get_schema(schema_id, fmt="serialized")
            except SchemaRegistryError as error:
                if error.http_status_code == 404 and error.error_code == _NO_SUCH_SCHEMA:
                    return None
                raise
            references: dict[str, str] = {}
            self._add_references(found, references)
        text = found.schema_str or ""
        if found.schema_type == "PROTOBUF" and not all(map(_is_descriptor, [text, *references.values()])):
            try:
                text, references = descriptors(text, references)
            except NotCompiledError as error:
                raise RegistryRefusedError(
                    f"the schema registry at {self._where} gives of the Protobuf schema {schema_id} only the text; {error}"
                ) from error
        return WriterSchema(found.schema_type or "AVRO", text, tuple(references.items()))  # type: ignore[arg-type]

    def _add_references(self, schema: "Schema", found: dict[str, str]) -> None:
        """Depth first, so that each comes behind its own references."""
        for reference in schema.references or ():
            name, subject, version = reference.name, reference.subject, reference.version
            if name is None or subject is None or version is None:
                raise RegistryRefusedError(
                    f"the schema registry at {self._where} gives a reference without a place"
                )
            if name in found:
                continue
            if len(found) > _MAX_REFERENCES:
                raise RegistryRefusedError(f"a schema has over {_MAX_REFERENCES} references")
            fmt = "serialized" if schema.schema_type == "PROTOBUF" else None
            referenced = self.client.get_version(subject, version, True, fmt).schema
            self._add_references(referenced, found)
            found[name] = referenced.schema_str or ""


def _is_descriptor(text: str) -> bool:
    """Whether a Protobuf schema is given as one, and not as its text."""
    try:
        base64.b64decode(text, validate=True)
    except ValueError:
        return False
    return True


def schemas_of(options: Mapping[str, Any]) -> RegistrySchemas:
    """Return this process' schemas of a registry: one for each configuration of its client."""
    return _schemas_of(json.dumps(dict(options), sort_keys=True))


@cache
def _schemas_of(options: str) -> RegistrySchemas:
    return RegistrySchemas(json.loads(options))


def registry_client(options: Mapping[str, Any]) -> "SchemaRegistryClient":
    """Make a client.

    Raises RegistryRefusedError where its options are wrong, ModuleNotFoundError that names the extra where it is not installed.
    """
    try:
        from confluent_kafka.schema_registry import SchemaRegistryClient
    except ImportError as error:
        raise ModuleNotFoundError(
            f"{error}: schemas need the extra `schema-registry` (pip install 'spark-outbox[schema-registry]'), on the executors, too"
        ) from error
    try:
        return SchemaRegistryClient(dict(options))
    except (ValueError, TypeError, OSError) as error:
        # Its texts quote the url and the names of options, never their values.
        raise RegistryRefusedError(
            f"no client of the schema registry can be made with these options: {type(error).__name__}: {error}. Correct [schema_registry]"
        ) from error


@contextmanager
def registry_errors(where: str) -> Iterator[None]:
    """Tell an absent registry from one that refuses; both with its own words. `where`: its url.

    Raises RegistryAwayError, RegistryRefusedError.
    """
    import httpx2
    from confluent_kafka.schema_registry.error import OAuthTokenError, SchemaRegistryError

    try:
        yield
    except SchemaRegistryError as error:
        told = f"the schema registry at {where} answers HTTP {error.http_status_code}, code {error.error_code}: {error.error_message}"
        if error.http_status_code >= 500 or error.http_status_code in _PASSING:
            raise RegistryAwayError(told) from error
        raise RegistryRefusedError(told) from error
    except httpx2.TransportError as error:
        raise RegistryAwayError(
            f"the schema registry at {where} does not answer: {type(error).__name__}: {error}"
        ) from error
    except OAuthTokenError as error:
        raise RegistryAwayError(f"no token for the schema registry at {where}: {error.message}") from error
    except ValueError as error:  # an answer that is not JSON
        raise RegistryRefusedError(
            f"what answers at {where} is no schema registry: {type(error).__name__}: {error}"
        ) from error
