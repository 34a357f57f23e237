"""The schemas of a registry by id.

An id's schema never changes, so a usable schema is requested once, and again after the cache has dropped it. A missing schema may be
registered at any time, so its absence is remembered only briefly: `spark_job/assembly/schemas.py` decides when it becomes a verdict.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from service.formats.proto_text import has_compiler
from service.formats.registry.answers import (
    MAX_BODY,
    MAX_ID,
    SchemaTooLargeError,
    checked,
    is_of_the_format,
    is_verdict,
    quoted,
    registry_errors,
)
from service.formats.registry.client import configuration, registry_client
from service.formats.registry.pauses import Pauses
from service.formats.registry.references import ReferencesUnusableError, references_of
from service.formats.remembered import MOST_CHARS, SchemaCache
from service.formats.writer import RegistryAwayError, RegistryRefusedError, UnusableSchema, WriterSchema

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import Schema
    from confluent_kafka.schema_registry.error import SchemaRegistryError

_NO_SUCH_SCHEMA = 40403
_KINDS = frozenset({"AVRO", "PROTOBUF", "JSON"})
_UNUSABLE_S = 1.0
"""Seconds for which it is remembered that an id cannot be used."""
_MOST_REMEMBERED = 10_000
_LASTS_S = 10.0
"""Seconds that a client may fail before another one is made."""
_MOST_OPEN = 4
"""Clients of a process: each new secret or certificate makes another one."""


class RegistrySchemas(Mapping[int, WriterSchema | UnusableSchema]):
    """The schemas of one registry by id, requested when first looked up. Thread-safe."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        """`options`: the client's options, `url` among them. Raises RegistryRefusedError if the client cannot be made of them."""
        self._options = dict(options)
        self.client = registry_client(options)
        self._failing_since: float | None = None
        self._where = str(options["url"])
        self._known: SchemaCache[int, WriterSchema] = SchemaCache(MOST_CHARS)
        self._unusable: dict[int, tuple[float, UnusableSchema]] = {}
        self._absent_since: dict[int, float] = {}
        self._lock = threading.Lock()
        self._pauses = Pauses(self._where)
        self._pauses.watch(self.client)

    def __getitem__(self, schema_id: int) -> WriterSchema | UnusableSchema:
        """Return an id's schema. Raises RegistryAwayError, RegistryRefusedError."""
        if (known := self._known.get(schema_id)) is not None:
            return known
        with self._lock:
            if (known := self._known.get(schema_id)) is not None:
                return known
            at, unusable = self._unusable.get(schema_id, (0.0, None))
            if unusable is not None and time.monotonic() < at + _UNUSABLE_S:
                return unusable
            return self._fetch_and_remember(schema_id)

    def asked_again(self, schema_id: int) -> WriterSchema | UnusableSchema:
        """Look up an id, even if it is remembered as unusable."""
        with self._lock:
            return self._fetch_and_remember(schema_id)

    def _fetch_and_remember(self, schema_id: int) -> WriterSchema | UnusableSchema:
        found = self.fetch(schema_id)
        if isinstance(found, WriterSchema):
            self._known.put(schema_id, found, found.chars)
            self._unusable.pop(schema_id, None)
            self._absent_since.pop(schema_id, None)
            return found
        for each in (self._unusable, self._absent_since):
            if len(each) >= _MOST_REMEMBERED:
                each.clear()
        self._unusable[schema_id] = time.monotonic(), found
        self._absent_since.setdefault(schema_id, time.monotonic())
        return found

    def absent_since(self, schema_id: int) -> float:
        """Return when the registry was first asked in vain for an id (time.monotonic)."""
        return self._absent_since.get(schema_id, float("-inf"))

    def __iter__(self) -> Iterator[int]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)

    def knows(self, schema_id: int) -> bool:
        """Return whether a look-up needs no request because its answer never changes."""
        return self._known.get(schema_id) is not None or schema_id > MAX_ID

    def fetch(self, schema_id: int) -> WriterSchema | UnusableSchema:
        """Request a schema, even a known one. Raises RegistryAwayError, RegistryRefusedError."""
        if schema_id > MAX_ID:
            return UnusableSchema(f"no registry has a schema {schema_id}: ids end at {MAX_ID}")
        try:
            return self._fetch(schema_id)
        except SchemaTooLargeError:
            return UnusableSchema(f"schema {schema_id}, or one that it refers to, has over {MAX_BODY} bytes")

    def _fetch(self, schema_id: int) -> WriterSchema | UnusableSchema:
        found = self._asked(lambda: self.client.get_schema(schema_id), is_verdict)
        if isinstance(found, Exception):
            may_come = found.http_status_code == 404
            if found.error_code == _NO_SUCH_SCHEMA:
                return UnusableSchema(f"the registry has no schema {schema_id}", may_come)
            return UnusableSchema(f"the registry does not give schema {schema_id}: {quoted(found)}", may_come)
        kind = found.schema_type or "AVRO"
        if kind not in _KINDS:
            return UnusableSchema(f"schema {schema_id} is of a kind that is not supported: {kind}")
        if kind == "PROTOBUF":
            found = self._descriptor(lambda: self.client.get_schema(schema_id, fmt="serialized")) or found
        try:
            references = references_of(
                found, partial(self._version, is_protobuf=found.schema_type == "PROTOBUF")
            )
        except ReferencesUnusableError as error:
            return UnusableSchema(f"schema {schema_id} {error}", error.may_come)
        return WriterSchema(kind, found.schema_str or "", references)  # type: ignore[arg-type]

    def _descriptor(self, ask: "Callable[[], Schema]") -> "Schema | None":
        """Return a Protobuf schema's descriptor, which needs no compiler; None if the registry can give only the text: some registries fail
        for some descriptors, or for all (Karapace's issue 1263). Descriptor and text decode a value alike.
        """
        found = self._asked(ask, is_of_the_format)
        if not isinstance(found, Exception):
            return found
        if found.http_status_code >= 500 and found.http_status_code != 501 and not has_compiler():
            raise RegistryAwayError(
                f"the schema registry at {self._where} does not give the descriptor of a Protobuf schema: {quoted(found)}. If that does "
                "not pass, install the extra `protobuf-text`, on the executors, too: the text is read then"
            )
        return None

    def _version(self, subject: str, version: int, *, is_protobuf: bool) -> "Schema | SchemaRegistryError":
        def ask(fmt: str | None) -> "Schema":
            return self.client.get_version(subject, version, True, fmt).schema

        found = self._descriptor(partial(ask, "serialized")) if is_protobuf else None
        return found or self._asked(partial(ask, None), is_verdict)

    def _asked(
        self, ask: "Callable[[], Schema]", is_answer: "Callable[[SchemaRegistryError], bool]"
    ) -> "Schema | SchemaRegistryError":
        """Return the registry's answer, or its error if `is_answer` accepts the error as an answer. Raises RegistryAwayError,
        RegistryRefusedError.
        """
        from confluent_kafka.schema_registry.error import SchemaRegistryError

        with self.errors():
            try:
                return checked(self._pauses.asked(ask))
            except SchemaRegistryError as error:
                if is_answer(error):
                    return error
                raise
            except (
                KeyError,
                TypeError,
                AttributeError,
                RecursionError,
            ) as error:  # JSON, but not a registry's answer
                raise ValueError(f"{type(error).__name__}: {error}") from error
            finally:
                self.client.clear_caches()  # type: ignore[no-untyped-call] # it forgets nothing by itself

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Do as `registry_errors` around a request to `client`, and replace a client that has failed for long, as for Kafka
        (`service/kafka/renewable_client.py`): the new one has new connections, tokens and certificates.
        """
        try:
            with registry_errors(self._where):
                yield
        except RegistryAwayError:
            now = time.monotonic()
            self._failing_since = self._failing_since or now
            if now - self._failing_since >= _LASTS_S:
                self._renew()
            raise
        self._failing_since = None

    def _renew(self) -> None:
        # While a certificate is being replaced, no client may be made: the next failure tries again.
        with suppress(RegistryRefusedError):
            former, self.client = self.client, registry_client(self._options)
            self._pauses.watch(self.client)
            self._failing_since = None
            former.close()


_opened: dict[str, RegistrySchemas] = {}
_opening = threading.Lock()


def schemas_of(options: Mapping[str, Any]) -> RegistrySchemas:
    """Return this process' schemas of a registry: one for each configuration of its client."""
    configured = configuration(options)
    with _opening:
        if configured not in _opened:
            _opened[configured] = RegistrySchemas(options)
            if len(_opened) > _MOST_OPEN:
                # Not closed: another thread may still use it.
                del _opened[next(iter(_opened))]
        return _opened[configured]
