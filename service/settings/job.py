"""The settings of `spark-job`."""

import re
from contextlib import suppress
from datetime import UTC, datetime
from typing import Annotated, Literal, Self, get_args

from pydantic import Field, field_validator, model_validator

from service.settings.section import LoggedAddress, Section

Latency = Literal["lowest", "balanced", "cheapest"]
_PERIODS_MS: dict[Latency, int] = {"lowest": 0, "balanced": 300, "cheapest": 1_000}
_MOST_LATENCY_MS = 3_600_000

_FORMER_STRATEGIES = {
    "fixed_delay": 'set strategy = "exponential", and max_delay_s to the same number as delay_s',
    "failure_rate": 'set strategy = "exponential"; attempts bounds the restarts in succession, and reset_after_s ends a succession',
}

ANY_TYPE = "*"
"""The value of `[session] entry` that means any event type."""
_FIELD_PATH = re.compile(r"\$(\.[A-Za-z_][A-Za-z0-9_-]*)+")
# A header's name is read up to its first NUL, and as U+FFFD if it is not UTF-8 (service/kafka/record_headers.py).
_HEADER = re.compile(r"header:[^\0\ufffd]+")


StartingOffsets = Literal["earliest", "latest"] | datetime | dict[str, dict[int, int]]
"""A table is `{topic: {partition: offset}}`."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _starting_offsets(value: object) -> object:
    if value in get_args(get_args(StartingOffsets)[0]):
        return value
    if isinstance(value, dict):
        return {topic: _partitions(topic, offsets) for topic, offsets in value.items()}
    found: object = value
    if isinstance(value, str):
        with suppress(ValueError):
            found = datetime.fromisoformat(value)
    if isinstance(found, datetime) and found.tzinfo is not None and found >= _EPOCH:
        return found
    raise ValueError(
        f"{str(value)!r} is not earliest, latest, a time with its zone, 1970 or later (2026-11-24T10:00:00Z), nor a table of offsets "
        "({ topic = { 0 = 120, 1 = 95 } })"
    )


def _partitions(topic: object, offsets: object) -> dict[int, int]:
    if not isinstance(offsets, dict):
        raise ValueError(
            f"{topic!r} = {offsets!r} is not a table of offsets by partition ({{ 0 = 120, 1 = 95 }})"
        )
    found = {}
    for partition, offset in offsets.items():
        number = str(partition)
        if not (number.isascii() and number.isdecimal() and type(offset) is int and 0 <= offset < 2**63):
            raise ValueError(
                f"{topic!r}: {partition!r} = {offset!r} is not a partition's number and its offset"
            )
        found[int(number)] = offset
    return found


class SourceSettings(Section):
    topics: tuple[str, ...] = Field(default=("session-events",), min_length=1)
    """Input topics. A later addition is read from its earliest record."""
    starting_offsets: StartingOffsets = "earliest"
    """Where the first generation starts; later ones ignore it. A time with its zone (`2026-11-24T10:00:00Z`) stands for
    each partition's first record from then on, else its end. A table names offsets: `{ topic = { 0 = 120, 1 = 95 } }`."""
    consumer_group: str = "outbox-spark-job"
    """Group to which the job commits its offsets, for lag tools only. Empty: none."""
    format: Literal["json", "bytes", "avro", "protobuf", "json-schema"] = "json"
    """Format of the records' values (docs/formats.md); the last three need [schema_registry]."""
    schema_id: str = "payload"
    """Where a record's schema id is: in front of the value (`payload`), or in a header (`header:NAME`)."""

    _start = field_validator("starting_offsets", mode="before")(_starting_offsets)

    @field_validator("schema_id")
    @classmethod
    def _id_source(cls, value: str) -> str:
        if value != "payload" and not _HEADER.fullmatch(value):
            raise ValueError(f"{value!r} is not `payload` or `header:NAME`")
        return value

    @property
    def has_schemas(self) -> bool:
        """Whether the records have schemas in a registry."""
        return self.format in ("avro", "protobuf", "json-schema")


class SessionSettings(Section):
    key: str = "$.session_key"
    """Session key: a field of the value (`$.name`, `$.a.b`), the record's key (`key`), or a header (`header:NAME`)."""
    type: str = "$.event_type"
    """Event type: a field of the value or a header."""
    start: str = "start_event"
    """Event type that opens a session. Empty: any event does."""
    entry: str | tuple[str, ...] = "entry_event"
    """Event type within a session, a list of them, or `*`: any that is neither start nor end."""
    end: str = "end_event"
    """Event type that closes a session. Empty: only the timeout does, which needs `on_timeout = "emit"`."""
    event_id: str | None = None
    """Field of the value or header by which duplicates within a session are dropped; none: only repeated starts are dropped."""
    time: str = "timestamp"
    """Event time: the record's `timestamp`, or a field of the value."""
    time_format: Literal["iso8601", "epoch_ms"] = "iso8601"
    """How a time field is written: text, or an integer of milliseconds (or a time type of Avro or Protobuf)."""
    timeout_s: float = Field(default=60, ge=0.001, le=86_400)
    """Seconds beyond a session's greatest time; a later event ends the session as timed out."""
    grace_s: float = Field(default=20, ge=0, le=86_400)
    """Seconds beyond the timeout before other keys' events show silence."""
    clock_records: bool = False
    """Whether clock records, which `spark-job clock` writes into quiet input partitions, show silence
    (docs/sessions.md#a-partition-that-falls-quiet). Otherwise they are `malformed`."""
    on_timeout: Literal["dead_letter", "emit"] = "dead_letter"
    """Whether a session that timed out, by an event or by silence, becomes a dead letter `timed_out` or goes to the transform
    (docs/sessions.md#sessions-that-end-by-silence)."""
    max_events: int = Field(default=10_000, ge=2, le=10_000_000)
    """Events a session may have; beyond, it becomes a dead letter `too_large`, or closes in parts (docs/sessions.md#limits)."""
    max_bytes: int = Field(default=16_777_216, ge=1_024, le=268_435_456)
    """Bytes of event values a session may have."""
    max_open_bytes: int = Field(default=1_073_741_824, ge=65_536)
    """Bytes of open sessions' keys and events in an input partition; beyond, its oldest sessions become `too_large`."""

    @field_validator("key")
    @classmethod
    def _key_source(cls, value: str) -> str:
        if value != "key" and not _FIELD_PATH.fullmatch(value) and not _HEADER.fullmatch(value):
            raise ValueError(f"{value!r} is not `key`, `$.field` or `header:NAME`")
        return value

    @field_validator("type", "event_id")
    @classmethod
    def _field_or_header(cls, value: str | None) -> str | None:
        if value is not None and not _FIELD_PATH.fullmatch(value) and not _HEADER.fullmatch(value):
            raise ValueError(f"{value!r} is not `$.field` or `header:NAME`")
        return value

    @field_validator("time")
    @classmethod
    def _time_source(cls, value: str) -> str:
        if value != "timestamp" and not _FIELD_PATH.fullmatch(value):
            raise ValueError(f"{value!r} is not `timestamp` or `$.field`")
        return value

    @field_validator("entry")
    @classmethod
    def _entry_types(cls, value: str | tuple[str, ...]) -> str | tuple[str, ...]:
        names = (value,) if isinstance(value, str) else tuple(sorted(set(value)))
        if not all(names) or not names or (len(names) > 1 and ANY_TYPE in names):
            raise ValueError(f"{value!r} is not an event type, a list of event types or `{ANY_TYPE}`")
        return names[0] if len(names) == 1 else names

    @model_validator(mode="after")
    def _types_differ(self) -> Self:
        entries = (self.entry,) if isinstance(self.entry, str) else self.entry
        names = [name for name in (self.start, *entries, self.end) if name]
        if len(set(names)) < len(names):
            raise ValueError(
                f"start, entry and end must differ: {self.start!r}, {self.entry!r}, {self.end!r}"
            )
        return self

    @model_validator(mode="after")
    def _sessions_end(self) -> Self:
        if not self.end and self.on_timeout != "emit":
            raise ValueError(
                "without an end event every session times out: end = '' needs on_timeout = 'emit'"
            )
        return self

    @model_validator(mode="after")
    def _fields_differ(self) -> Self:
        texts = [each for each in (self.key, self.type, self.event_id) if each and each.startswith("$.")]
        for parent in (*texts, self.time):
            for field in (*texts, self.time):
                if field.startswith(f"{parent}."):
                    raise ValueError(f"{parent} is both a value and the parent of {field}")
        if self.time_format == "epoch_ms" and self.time in texts:
            raise ValueError(f"{self.time} cannot be the time in milliseconds and a text")
        return self


class TransformSettings(Section):
    function: str = Field(default="transform:transform", pattern=r"^[\w.]+:\w+$")
    """The transform, `module:function`."""
    on_error: Literal["dead_letter", "stop"] = "dead_letter"
    """After a transform raised: its session becomes a dead letter, or the job stops."""


def _goal(value: object) -> object:
    if value in get_args(Latency):
        return value
    text = str(value)
    if isinstance(value, bool) or not (text.isascii() and text.isdecimal() and int(text) <= _MOST_LATENCY_MS):
        raise ValueError(
            f"{value!r} is not lowest, balanced or cheapest, nor milliseconds up to {_MOST_LATENCY_MS:,}"
        )
    return int(text)


class JobSettings(Section):
    cache: str = "./cache"
    """Folder on each executor's machine for the open sessions: may be lost."""
    latency: Latency | Annotated[int, Field(ge=0, le=_MOST_LATENCY_MS)] = "balanced"
    """How soon a batch may follow the one before: `lowest` at once, `balanced` after 300 ms, `cheapest` after a second, or milliseconds;
    always at once where the job is behind."""
    _latency = field_validator("latency", mode="before")(_goal)
    tasks: int = Field(default=0, ge=0, le=10_000)
    """Most tasks of a batch; 0: Spark's cores, with `master` local[*] twice as many for a large batch, and one for a small batch unless
    `latency` is lowest."""
    max_events_per_batch: int = Field(default=500_000, ge=1, le=100_000_000)
    """Most input events of a batch."""
    async_progress: bool = True
    """Keep Spark's own log of batches in memory; `false`: two small files a batch."""
    max_row_bytes: int = Field(default=67_108_864, ge=1_024, le=536_870_912)
    """Most bytes of one session's outputs as encoded, and of one outbox row."""
    master: LoggedAddress = "local[*]"
    """Spark master, if `spark-job` starts Spark itself."""
    driver_memory: str = Field(default="2g", pattern=r"^\d+[mg]$")
    """Heap of the driver (in local mode: of everything)."""
    spark_options: dict[str, str] = Field(default={}, repr=False)
    """Further Spark configuration, as Spark names it."""

    @field_validator("spark_options")
    @classmethod
    def _names_no_master(cls, options: dict[str, str]) -> dict[str, str]:
        if "spark.master" in options:
            raise ValueError("has spark.master: set [job] master (OUTBOX_JOB__MASTER) instead")
        return options

    heartbeat_s: float = Field(default=2.0, ge=0.2, le=60)
    """Seconds between two heartbeats of the writer, and two polls for commands' requests."""
    owner_timeout_s: float = Field(default=30.0, ge=1, le=3_600)
    """Seconds without a heartbeat after which a writer with an open connection counts as dead."""

    max_backlog_events: int = Field(default=0, ge=0)
    """Undelivered output events at which the job commits no further batch; 0: no bound."""
    max_backlog_bytes: int = Field(default=0, ge=0)
    """The same in bytes of values; 0: no bound."""

    @property
    def period_ms(self) -> int:
        """Milliseconds from the start of a batch to the start of the next one, by `latency`."""
        return self.latency if isinstance(self.latency, int) else _PERIODS_MS[self.latency]

    @model_validator(mode="after")
    def _heart_beats_in_time(self) -> Self:
        if self.owner_timeout_s < 3 * self.heartbeat_s:
            raise ValueError(
                f"owner_timeout_s ({self.owner_timeout_s}) must be at least three times heartbeat_s ({self.heartbeat_s}), or a healthy "
                "owner counts as dead"
            )
        return self


class RestartSettings(Section):
    strategy: Literal["exponential", "none"] = "exponential"
    """Whether the job starts again inside its process after a failure that may pass: after delays that double, or not at all."""
    delay_s: float = Field(default=1.0, ge=0, le=3_600)
    """Seconds before the first restart; each further one waits twice as long. Up to a tenth is left off at random."""
    max_delay_s: float = Field(default=60.0, ge=0, le=86_400)
    """Longest delay. The same as `delay_s`: all delays are equal."""
    attempts: int = Field(default=0, ge=0)
    """Restarts in succession before the job gives up; 0: no bound."""
    reset_after_s: float = Field(default=300.0, ge=0, le=86_400)
    """Seconds without a failure that reset count and delay."""

    @field_validator("strategy", mode="before")
    @classmethod
    def _strategy_is_left(cls, value: object) -> object:
        if value in _FORMER_STRATEGIES:
            raise ValueError(f"{value!r} was removed: {_FORMER_STRATEGIES[str(value)]}")
        return value

    @model_validator(mode="after")
    def _delay_grows(self) -> Self:
        if self.strategy == "exponential" and self.max_delay_s < self.delay_s:
            raise ValueError(f"max_delay_s ({self.max_delay_s}) must not be below delay_s ({self.delay_s})")
        return self
