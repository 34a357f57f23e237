"""Decodes values whose schema is in the registry of `[schema_registry]`. Other values are shown as bytes, with the reason if they
name a schema.

No page waits for the registry for longer than PAGE_S, whatever the registry does: a separate thread sends the requests, and the pages wait
for that thread.
"""

import time
from queue import SimpleQueue
from threading import Condition, Event, Thread
from typing import NamedTuple

import structlog

from publisher.console.rendering.masking import shown_bytes, shown_text
from service.errors import SettingsError, reason_of
from service.formats.registry.schemas import RegistrySchemas
from service.formats.remembered import SchemaCache
from service.formats.values import as_json
from service.formats.wire import WireFormatError, split
from service.formats.writer import RegistryAwayError, RegistryRefusedError, UnusableSchema, WriterSchema
from service.lifecycle.threads import supervised
from service.settings import SchemaRegistrySettings

_log = structlog.get_logger()

PAGE_S = 3.0
"""How many seconds all values of a page together may wait for the registry."""
AGAIN_S = 10.0
"""Seconds until the registry is asked again, after it did not answer, refused, or had no schema for an id."""
MOST_VALUE_BYTES = 64 << 10
MOST_PAGE_BYTES = 1 << 20
"""The most bytes that are read of one value, and that are decoded of all values of a page. They bound a page's time and memory."""
_ANSWER_S = 2.0
_UNUSABLE_CHARS = 4_000
"""The size in the cache, in characters, of an answer without a usable schema."""
_KINDS = {"AVRO": "Avro", "PROTOBUF": "Protobuf", "JSON": "JSON Schema"}


class SchemaAnswer(NamedTuple):
    """The registry's answer for an id. `trouble`: why there is no schema; `until`: when to ask again (time.monotonic)."""

    schema: WriterSchema | UnusableSchema | None
    subjects: str = ""
    trouble: str = ""
    until: float = float("inf")


class SchemaLookup:
    """The registry's schemas and their names. Each is requested once. Thread-safe."""

    def __init__(self, settings: SchemaRegistrySettings) -> None:
        """Sends no request and starts no thread before the first `find`."""
        self._settings = settings
        self._schemas: RegistrySchemas | None = None
        self._answers: SchemaCache[int, SchemaAnswer] = SchemaCache()
        self._away: SchemaAnswer | None = None
        """The answer for every id while the registry does not answer or refuses."""
        self._asked: SimpleQueue[int | None] = SimpleQueue()
        self._waiting: set[int] = set()
        self._changed = Condition()
        self._thread: Thread | None = None

    def find(self, schema_id: int, wait_s: float) -> SchemaAnswer:
        """Return the registry's answer. Waits at most `wait_s` for it."""
        with self._changed:
            if (known := self._known(schema_id)) is not None:
                return known
            if schema_id not in self._waiting:
                self._waiting.add(schema_id)
                self._asked.put(schema_id)
            if self._thread is None:
                self._thread = supervised(self._answer_all, "console schemas", Event())
                self._thread.start()
            self._changed.wait_for(lambda: schema_id not in self._waiting, wait_s)
            if schema_id not in self._waiting and (answer := self._answers.get(schema_id)) is not None:
                return answer
        return SchemaAnswer(None, trouble="the schema registry has not answered yet: load the page again")

    def close(self) -> None:
        """Let the thread answer the questions asked before, then close the client and end."""
        self._asked.put(None)

    def _known(self, schema_id: int) -> SchemaAnswer | None:
        now = time.monotonic()
        for each in (self._answers.get(schema_id), self._away):
            if each is not None and each.until > now:
                return each
        return None

    def _answer_all(self) -> None:
        while (schema_id := self._asked.get()) is not None:
            with self._changed:
                known = self._known(schema_id)
            answer = known or self._answer(schema_id)
            with self._changed:
                chars = answer.schema.chars if isinstance(answer.schema, WriterSchema) else _UNUSABLE_CHARS
                self._answers.put(schema_id, answer, chars)
                self._waiting.discard(schema_id)
                self._changed.notify_all()
        self._close_client()

    def _close_client(self) -> None:
        if self._schemas is not None:
            self._schemas.client.close()
            self._schemas = None

    def _answer(self, schema_id: int) -> SchemaAnswer:
        try:
            if self._schemas is None:
                options = self._settings.client()
                options |= {"timeout": min(_ANSWER_S, self._settings.timeout_s), "max.retries": 0}
                self._schemas = RegistrySchemas(options)
            schema = self._schemas.fetch(schema_id)
            if isinstance(schema, UnusableSchema):
                return SchemaAnswer(schema, until=time.monotonic() + AGAIN_S)
            return SchemaAnswer(schema, self._subjects(schema_id))
        except (RegistryAwayError, RegistryRefusedError, SettingsError, ModuleNotFoundError) as error:
            self._close_client()  # the next client reads the present secrets and certificates
            away = SchemaAnswer(None, trouble=str(error), until=time.monotonic() + AGAIN_S)
            with self._changed:
                self._away = away
            return away
        except Exception as error:  # noqa: BLE001 - the page shows bytes instead, and the thread continues
            _log.warning("console_schema_failed", schema_id=schema_id, exc_info=error)
            trouble = f"{reason_of(error)}; the log has the traceback"
            return SchemaAnswer(None, trouble=trouble, until=time.monotonic() + AGAIN_S)

    def _subjects(self, schema_id: int) -> str:
        """Return the subjects under which the schema is registered; "" if the registry does not tell."""
        assert self._schemas is not None
        try:
            found = self._schemas.client.get_schema_versions(schema_id)
        except Exception:  # noqa: BLE001 - not every registry has this request, and the id is known
            return ""
        if not found:
            return ""
        first = f"{found[0].subject} version {found[0].version}"
        return first if len(found) == 1 else f"{first} and {len(found) - 1} more"


class ShownValue(NamedTuple):
    """A value as it is shown. `schema`: the schema that decoded it, or why none did; "" if it does not look like a value with a schema."""

    text: str
    schema: str = ""


class ShownValues:
    """Shows the values of one page. Not thread-safe."""

    def __init__(self, *, show: bool, lookup: SchemaLookup | None = None) -> None:
        self.show = show
        self._lookup = lookup
        self._bytes_left = MOST_PAGE_BYTES
        self._wait_left_s = PAGE_S

    def of(self, value: bytes | None, size: int | None = None) -> ShownValue:
        """Return what the page shows of a record's value. `size`: the size of the whole value, if `value` is only its beginning."""
        shown = shown_bytes(value, show=self.show, size=size)
        if value is None or not self.show or self._lookup is None:
            return ShownValue(shown)
        try:
            schema_id, _ = split(value)
        except WireFormatError:
            return ShownValue(shown)
        if (size or len(value)) > min(MOST_VALUE_BYTES, self._bytes_left):
            return ShownValue(
                shown, f"schema {schema_id}; too much to decode on a page: use `spark-job decode`"
            )
        self._bytes_left -= len(value)
        began = time.monotonic()
        answer = self._lookup.find(schema_id, self._wait_left_s)
        self._wait_left_s = max(0.0, self._wait_left_s - (time.monotonic() - began))
        if answer.trouble:
            return ShownValue(shown, f"schema {schema_id}; not decoded: {answer.trouble}")
        if not isinstance(answer.schema, WriterSchema):
            return ShownValue(shown, f"not decoded: {answer.schema.why if answer.schema else ''}")
        names = f"{_KINDS.get(answer.schema.kind, answer.schema.kind)}, " + ", ".join(
            each for each in (answer.subjects, f"schema {schema_id}") if each
        )
        try:
            return ShownValue(shown_text(as_json(value, {schema_id: answer.schema})), names)
        except ValueError as error:
            return ShownValue(shown, f"{names}; not decoded: {error}")
