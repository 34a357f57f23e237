"""Asks a schema registry, with confluent-kafka's own client: TLS, credentials, retries and several addresses are its.

An id's schema never changes, so one that can be used is asked for once, and again where it was used longer ago than others. That an id has
none is a fact of a moment, and remembered for one: `spark_job/assembly/schemas.py` decides when it becomes a verdict.
"""

import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from service.formats.proto_text import has_compiler
from service.formats.remembered import MOST_CHARS, SchemaCache
from service.formats.writer import RegistryAwayError, RegistryRefusedError, UnusableSchema, WriterSchema

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
    from confluent_kafka.schema_registry.error import SchemaRegistryError

Answer = TypeVar("Answer")

_NO_SUCH_SCHEMA = 40403
_VERDICTS = frozenset({400, 404, 409, 422})
"""Statuses of a registry's answers about a schema. A proxy or another server has them, too, but without a registry's codes."""
_REFUSALS = frozenset({401, 403, 407})
_NO_LOGIN = frozenset({401, 407})
_PASSING = frozenset({408, 425, 429})
_KINDS = frozenset({"AVRO", "PROTOBUF", "JSON"})
_MAX_ID = 2**31 - 1
_MAX_REFERENCES = 200
_MAX_WAITING = 10_000
"""References that were not looked up yet."""
_MAX_NAME_CHARS = 1_000
"""Of a reference's name, and of its subject, which becomes part of a url."""
_MAX_CHARS = 8 << 20
"""Of a schema and all that it refers to."""
_MAX_BODY = 2 * _MAX_CHARS
"""Bytes of an answer, unpacked: JSON writes a character as two where it must."""
_LONGEST_BODY_S = 30.0
"""Seconds that an answer may take to come in, once it has begun: the client's own timeout is that of a piece."""
_MOST_SAID = 2_000
"""Characters of its words in an error."""
_UNUSABLE_S = 1.0
"""Seconds for which it is remembered that an id cannot be used."""
_MOST_REMEMBERED = 10_000
_MOST_PAUSE_S = 10.0
"""Seconds that an answer with Retry-After is waited for within a request; a longer one is an outage."""
_MOST_PAUSES = 3
_CHECK_S = 2.0
"""Seconds that a start waits for a registry."""
_LASTS_S = 10.0
"""Seconds that a client may fail before another one is made."""
_MOST_OPEN = 4
"""Clients of a process: each new secret or certificate makes another one."""
_LONGEST_OUTAGE_S = 3_600.0
"""The limit of a longer Retry-After: its date may come from another clock."""


class RegistrySchemas(Mapping[int, WriterSchema | UnusableSchema]):
    """The schemas of one registry by id: asked for when first looked up. Thread-safe."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        """`options`: of the client, `url` among them. Raises RegistryRefusedError where the client cannot be made of them."""
        self._options = dict(options)
        self.client = registry_client(options)
        self._failing_since: float | None = None
        self._where = str(options["url"])
        self._known: SchemaCache[int, WriterSchema] = SchemaCache(MOST_CHARS)
        self._unusable: dict[int, tuple[float, UnusableSchema]] = {}
        self._absent_since: dict[int, float] = {}
        self._lock = threading.Lock()
        self._pauses = _Pauses(self._where)
        self._pauses.watch(self.client)

    def __getitem__(self, schema_id: int) -> WriterSchema | UnusableSchema:
        """Raises RegistryAwayError, RegistryRefusedError."""
        if (known := self._known.get(schema_id)) is not None:
            return known
        with self._lock:
            if (known := self._known.get(schema_id)) is not None:
                return known
            at, unusable = self._unusable.get(schema_id, (0.0, None))
            if unusable is not None and time.monotonic() < at + _UNUSABLE_S:
                return unusable
            return self._fetched(schema_id)

    def asked_again(self, schema_id: int) -> WriterSchema | UnusableSchema:
        """As a look-up; what is remembered of an id that could not be used does not count."""
        with self._lock:
            return self._fetched(schema_id)

    def _fetched(self, schema_id: int) -> WriterSchema | UnusableSchema:
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
        """When the registry was first asked in vain for an id that it does not have (time.monotonic)."""
        return self._absent_since.get(schema_id, float("-inf"))

    def __iter__(self) -> Iterator[int]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)

    def knows(self, schema_id: int) -> bool:
        """Whether a look-up asks nothing, and the answer will never be another."""
        return self._known.get(schema_id) is not None or schema_id > _MAX_ID

    def fetch(self, schema_id: int) -> WriterSchema | UnusableSchema:
        """Ask for a schema, whatever is known. Raises RegistryAwayError, RegistryRefusedError."""
        if schema_id > _MAX_ID:
            return UnusableSchema(f"no registry has a schema {schema_id}: ids end at {_MAX_ID}")
        try:
            return self._fetch(schema_id)
        except SchemaTooLargeError:
            return UnusableSchema(f"schema {schema_id}, or one that it refers to, has over {_MAX_BODY} bytes")

    def _fetch(self, schema_id: int) -> WriterSchema | UnusableSchema:
        found = self._asked(lambda: self.client.get_schema(schema_id), _is_verdict)
        if isinstance(found, Exception):
            may_come = found.http_status_code == 404
            if found.error_code == _NO_SUCH_SCHEMA:
                return UnusableSchema(f"the registry has no schema {schema_id}", may_come)
            return UnusableSchema(f"the registry does not give schema {schema_id}: {_told(found)}", may_come)
        kind = found.schema_type or "AVRO"
        if kind not in _KINDS:
            return UnusableSchema(f"schema {schema_id} is of a kind that is not supported: {kind}")
        if kind == "PROTOBUF":
            found = self._descriptor(lambda: self.client.get_schema(schema_id, fmt="serialized")) or found
        references: dict[str, str] = {}
        if (why := self._add_references(found, references)) is not None:
            return UnusableSchema(f"schema {schema_id} {why[0]}", may_come=why[1])
        return WriterSchema(kind, found.schema_str or "", tuple(references.items()))  # type: ignore[arg-type]

    def _descriptor(self, ask: "Callable[[], Schema]") -> "Schema | None":
        """A Protobuf schema's descriptor, which needs no compiler. None where the registry can give only the text: some fail at each
        descriptor, or at some (Karapace's issue 1263). By either, values are decoded alike.
        """
        found = self._asked(ask, _is_of_the_format)
        if not isinstance(found, Exception):
            return found
        if found.http_status_code >= 500 and found.http_status_code != 501 and not has_compiler():
            raise RegistryAwayError(
                f"the schema registry at {self._where} does not give the descriptor of a Protobuf schema: {_told(found)}. If that does "
                "not pass, install the extra `protobuf-text`, on the executors, too: the text is read then"
            )
        return None

    def _add_references(self, schema: "Schema", found: dict[str, str]) -> tuple[str, bool] | None:
        """Depth first, so that each comes behind its own references. Return why they cannot be used, and whether they still may come; None:
        they can.
        """
        is_protobuf = schema.schema_type == "PROTOBUF"
        left = _MAX_CHARS - len(schema.schema_str or "")
        opened: dict[str, str] = {}
        todo = [(reference, False) for reference in reversed(schema.references or ())]
        while left >= 0 and todo:
            reference, below_done = todo.pop()
            if (place := _place(reference)) is None:
                return "has a reference that names no version of a subject", False
            name, subject, version = place
            if below_done:
                found[name] = opened[name]
                continue
            if name in found:
                continue
            if name in opened:
                return f"refers to {name!r}, which refers to itself", False
            if len(opened) == _MAX_REFERENCES or len(todo) > _MAX_WAITING:
                return f"has over {_MAX_REFERENCES} references", False
            answer = self._version(subject, version, is_protobuf=is_protobuf)
            if isinstance(answer, Exception):
                of = f"refers to {name!r}, version {version} of subject {subject!r}, which the registry does not"
                if answer.http_status_code == 404:
                    return f"{of} have", True
                return f"{of} give: {_told(answer)}", False
            opened[name] = answer.schema_str or ""
            left -= len(opened[name])
            todo.append((reference, True))
            todo += [(each, False) for each in reversed(answer.references or ())]
        return None if left >= 0 else (f"has over {_MAX_CHARS} characters", False)

    def _version(self, subject: str, version: int, *, is_protobuf: bool) -> "Schema | SchemaRegistryError":
        def ask(fmt: str | None) -> "Schema":
            return self.client.get_version(subject, version, True, fmt).schema

        found = self._descriptor(partial(ask, "serialized")) if is_protobuf else None
        return found or self._asked(partial(ask, None), _is_verdict)

    def _asked(
        self, ask: "Callable[[], Schema]", is_answer: "Callable[[SchemaRegistryError], bool]"
    ) -> "Schema | SchemaRegistryError":
        """The registry's answer; its error where `is_answer` takes it for one. Raises RegistryAwayError, RegistryRefusedError."""
        from confluent_kafka.schema_registry.error import SchemaRegistryError

        with self.errors():
            try:
                return _checked(self._pauses.asked(ask))
            except SchemaRegistryError as error:
                if is_answer(error):
                    return error
                raise
            except (
                KeyError,
                TypeError,
                AttributeError,
                RecursionError,
            ) as error:  # JSON, but no answer of a registry
                raise ValueError(f"{type(error).__name__}: {error}") from error
            finally:
                self.client.clear_caches()  # type: ignore[no-untyped-call] # it forgets nothing by itself

    @contextmanager
    def errors(self) -> Iterator[None]:
        """As `registry_errors`, around what `client` is asked. Makes another one where this one has failed for long, as Kafka's are
        (`service/kafka/renewable_client.py`): its connections, tokens and certificates are new then.
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
        # A certificate that is just being replaced may make none: the next failure tries again.
        with suppress(RegistryRefusedError):
            former, self.client = self.client, registry_client(self._options)
            self._pauses.watch(self.client)
            self._failing_since = None
            former.close()


def _is_verdict(error: "SchemaRegistryError") -> bool:
    """Whether an error is the registry's answer about one schema. Its codes are the status alone, or with two more digits. A 404 with the
    status alone is also the answer of a server without this API.
    """
    status, code = error.http_status_code, error.error_code
    if status not in _VERDICTS or not isinstance(code, int):
        return False
    return code // 100 == status or (code == status and status != 404)


def _is_of_the_format(error: "SchemaRegistryError") -> bool:
    """Whether it may be that only this format of a schema fails."""
    return error.http_status_code not in _REFUSALS | _PASSING


def _told(error: "SchemaRegistryError") -> str:
    said = str(error.error_message)[:_MOST_SAID]
    return f"HTTP {error.http_status_code}, code {error.error_code}: {said}"


def _checked(answer: "Schema") -> "Schema":
    """Raise TypeError where it is none: the client fills in what JSON of another server does not have."""
    places = [place for each in answer.references or () for place in (each.name, each.subject)]
    texts = all(isinstance(each, str | None) for each in (*places, answer.schema_type))
    if not isinstance(answer.schema_str, str) or not texts:
        raise TypeError("it has no schema")
    return answer


def _place(reference: "SchemaReference") -> tuple[str, str, int] | None:
    """Name, subject and version of a reference that means the same for ever: subject and version become part of a url, and "latest", or -1,
    is another version tomorrow. None: it does not.
    """
    name, subject, version = reference.name, reference.subject, reference.version
    if name is None or not subject or max(len(name), len(subject)) > _MAX_NAME_CHARS:
        return None
    if not subject.isprintable() or subject in (".", ".."):
        return None
    return (name, subject, version) if type(version) is int and 0 < version <= _MAX_ID else None


class SchemaTooLargeError(RegistryRefusedError):
    """An answer was cut off, because it has more bytes than any schema that can be used."""


class _PauseError(Exception):
    """The registry asks for a pause."""


class _OversizeError(ValueError):
    """An answer is longer than `_MAX_BODY`."""


def _read(response: Any) -> None:
    """Read an answer with bounds, which the client has not: little may unpack to gigabytes, and each byte restarts its timeout."""
    import httpx2

    body, until = bytearray(), time.monotonic() + _LONGEST_BODY_S
    for piece in response.iter_bytes():
        body += piece
        if len(body) > _MAX_BODY:
            raise _OversizeError(f"an answer of over {_MAX_BODY} bytes")
        if time.monotonic() > until:
            raise httpx2.ReadTimeout(f"not read within {_LONGEST_BODY_S:g} s", request=response.request)
    response._content = bytes(body)


class _Pauses:
    """Honours Retry-After, which the client ignores. Not thread-safe."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._until = 0.0

    def watch(self, client: "SchemaRegistryClient") -> None:
        """See each answer before the client repeats its request."""
        client._rest_client.session.event_hooks["response"] = [self._look]

    def asked(self, ask: Callable[[], Answer]) -> Answer:
        """Raises RegistryAwayError where the pause is a long one."""
        for _ in range(_MOST_PAUSES):
            left = self._until - time.monotonic()
            if left > _MOST_PAUSE_S:
                break
            time.sleep(max(0.0, left))
            try:
                return ask()
            except _PauseError:
                continue
        left = max(0.0, self._until - time.monotonic())
        raise RegistryAwayError(
            f"the schema registry at {self._where} wants no request for {left:.0f} seconds"
        )

    def _look(self, response: Any) -> None:
        given = response.headers.get("Retry-After")
        if response.status_code in (429, 503) and given is not None:
            seconds = _seconds(given)
            if seconds is not None:
                self._until = time.monotonic() + seconds
                raise _PauseError
        _read(response)


def _seconds(retry_after: str) -> float | None:
    """Of a Retry-After: a number, or a date. None where it is neither."""
    try:
        seconds = (
            float(retry_after) if retry_after.isdecimal() else _until(parsedate_to_datetime(retry_after))
        )
    except (ValueError, OverflowError):  # also for dates out of datetime's range
        return None
    return min(max(0.0, seconds), _LONGEST_OUTAGE_S)


def _until(at: datetime) -> float:
    return (at.astimezone(UTC) - datetime.now(UTC)).total_seconds()


_opened: dict[str, RegistrySchemas] = {}
_opening = threading.Lock()


def schemas_of(options: Mapping[str, Any]) -> RegistrySchemas:
    """Return this process' schemas of a registry: one for each configuration of its client."""
    configured = configuration(options)
    with _opening:
        if configured not in _opened:
            _opened[configured] = RegistrySchemas(options)
            if len(_opened) > _MOST_OPEN:
                # Not closed: somebody may still ask it.
                del _opened[next(iter(_opened))]
        return _opened[configured]


def configuration(options: Mapping[str, Any]) -> str:
    """Return the configuration of a client: its options, and the state of the certificates and keys that they name, which it reads only
    once.
    """
    files = {name: _state(str(file)) for name, file in options.items() if name.endswith(".location")}
    return json.dumps([dict(options), files], sort_keys=True)


def _state(file: str) -> list[int]:
    try:
        found = os.stat(file)
    except OSError:
        return []
    return [found.st_ino, found.st_size, found.st_mtime_ns]


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


def check_login(client: "SchemaRegistryClient", where: str) -> None:
    """Ask once, with a client for this alone, for an id that no schema has. Any answer but a refusal of the credentials is no error here,
    nor is none: what is asked for later is judged then, and a role may have no right to this id. `where`: the registry's url.

    Raises RegistryRefusedError.
    """
    client._rest_client.max_retries = 0
    client._rest_client.session.timeout = _CHECK_S
    client._rest_client.session.event_hooks["response"] = [_read]
    try:
        with registry_errors(where):
            client._rest_client.get("schemas/ids/0")
    except (RegistryAwayError, RecursionError):
        pass
    except RegistryRefusedError as error:
        if getattr(error.__cause__, "http_status_code", None) in _NO_LOGIN:
            raise


@contextmanager
def registry_errors(where: str) -> Iterator[None]:
    """Tell an absent registry from one that refuses; both errors quote the registry. `where`: its url.

    Raises RegistryAwayError, RegistryRefusedError.
    """
    import httpx2
    from confluent_kafka.schema_registry.error import OAuthTokenError, SchemaRegistryError

    try:
        yield
    except SchemaRegistryError as error:
        told = f"the schema registry at {where} answers {_told(error)}"
        if error.http_status_code >= 500 or error.http_status_code in _PASSING:
            raise RegistryAwayError(told) from error
        raise RegistryRefusedError(told) from error
    except httpx2.RequestError as error:  # of the transport, or a body that is not what its headers say
        raise RegistryAwayError(
            f"the schema registry at {where} does not answer: {type(error).__name__}: {error}"
        ) from error
    except OAuthTokenError as error:
        raise RegistryAwayError(f"no token for the schema registry at {where}: {error.message}") from error
    except _OversizeError as error:
        raise SchemaTooLargeError(f"the schema registry at {where} gives {error}") from error
    except ValueError as error:  # an answer that is not JSON
        raise RegistryRefusedError(
            f"what answers at {where} is no schema registry: {type(error).__name__}: {error}"
        ) from error
