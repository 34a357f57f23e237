"""The assembler's settings: where the events' fields are, how large a session may grow, and when it times out."""

from dataclasses import dataclass
from typing import Literal

FieldPath = tuple[str, ...]
ANY_TYPE = "*"
"""The value of `entry` that stands for every type but `start` and `end`."""
Format = Literal["json", "bytes", "avro", "protobuf", "json-schema"]

# The range of `datetime`: a transform could not receive other times, so a record with one is malformed.
MIN_TS_MS = -62_135_596_800_000
MAX_TS_MS = 253_402_300_799_999


RULES_VERSION = 3
"""The version of the assembly rules in this code. A generation stores the version that judged its input; a rebuild applies that version.

1: ISO 8601 times have the common form alone (parsing/times.py, `_SHAPE`); a start or an end with an id of the session is a duplicate; any
one record of another key shows silence; `max_open_bytes` stops the job. 2: one event shows silence if the broker has set its record's time,
even if the event's own time is a field. 3: as docs/sessions.md says.
"""


@dataclass(frozen=True, slots=True)
class AssemblySettings:
    """How a partition's events become sessions. Raises ValueError if the values contradict each other.

    A path names a field of the payload, outermost first: `$.data.type` is `("data", "type")`.
    """

    type_path: FieldPath | None = ("event_type",)
    """None: the type comes from a header, in the input column `type`."""
    key_path: FieldPath | None = ("session_key",)
    """None: the key is the record's key or a header, in the input column `key`."""
    start: str = "start_event"
    """Empty: any event opens a session."""
    entry: str | tuple[str, ...] = "entry_event"
    """One type, several, or `*`: any that is neither `start` nor `end`."""
    end: str = "end_event"
    """Empty: only the timeout closes a session."""
    event_id_path: FieldPath | None = None
    """None: no deduplication by event id, unless the input has a column `event_id` (from a header)."""
    time_path: FieldPath | None = None
    """None: the record's timestamp is the event's time."""
    time_format: Literal["iso8601", "epoch_ms"] = "iso8601"
    """Of the field at `time_path`: an ISO 8601 string (UTC if it has no offset) or an integer."""
    timeout_ms: int = 60_000
    """A session times out if an event of its key is later than the session's greatest time plus this."""
    grace_ms: int = 20_000
    """Added to the timeout when other keys' records show the silence."""
    clock_records: bool = False
    """Whether the input column `clock` marks records that are no events and only show silence."""
    on_timeout: Literal["dead_letter", "emit"] = "dead_letter"
    """What happens to a session that times out, by its own key's next event or by silence."""
    max_events: int = 10_000
    """Of one session, its start and end included."""
    max_bytes: int = 16 << 20
    """Of one session: the sum of its events' payloads in bytes."""
    format: Format = "json"
    """The format of the values. `bytes` have no fields; the last three are in Confluent's wire format."""
    schema_id_in_header: bool = False
    """The values' schema ids are in the input column `schema_id`, and not in front of the values."""
    max_open_bytes: int | None = None
    """Limit on the bytes of a partition's open sessions; above it the oldest end. None: no limit, as in a rebuild and under rules 1."""
    rules_version: int = RULES_VERSION

    def __post_init__(self) -> None:
        named = [name for name in (self.start, *self.entries, self.end) if name]
        if len(set(named)) < len(named) or not self.entries:
            raise ValueError(
                f"session.start, session.entry and session.end must differ: "
                f"{self.start!r}, {self.entry!r}, {self.end!r}"
            )
        for name in ("timeout_ms", "max_events", "max_bytes"):
            if getattr(self, name) < 1:
                raise ValueError(f"session.{name} must be at least 1, not {getattr(self, name)}")
        if self.grace_ms < 0:
            raise ValueError(f"session.grace_ms must not be negative: {self.grace_ms}")
        if self.format == "bytes" and (
            self.key_path or self.type_path or self.event_id_path or self.time_path
        ):
            raise ValueError("values of the format bytes have no fields")
        paths = [
            p for p in (self.type_path, self.key_path, self.event_id_path, self.time_path) if p is not None
        ]
        for path in paths:
            if not path or not all(path):
                raise ValueError(f"a field path must name at least one field and no empty one: {path!r}")
            for other in paths:
                if path != other and path == other[: len(path)]:
                    raise ValueError(
                        f"field {'.'.join(path)} is both a value and the parent of {'.'.join(other)}"
                    )
        if self.time_format == "epoch_ms" and paths.count(self.time_path or ()) > 1:
            raise ValueError("session.time cannot be a number and share its field with a string")

    @property
    def silence_ms(self) -> int:
        """A session falls silent when other keys' records are later than its greatest time plus this."""
        return self.timeout_ms + self.grace_ms

    @property
    def trusts_broker_times(self) -> bool:
        """Whether a single event shows silence if the broker has set its record's time. Since rules 3, it does not if the event's time is a
        field: the producer chooses that time.
        """
        return self.rules_version < 3 or self.time_path is None

    @property
    def entries(self) -> tuple[str, ...]:
        """The types of entries, perhaps `*`."""
        return (self.entry,) if isinstance(self.entry, str) else self.entry

    @property
    def keeps_types(self) -> bool:
        """Whether each event's type must be kept, because entries have several types and the kind does not tell which."""
        return self.entries == (ANY_TYPE,) or len(self.entries) > 1

    @property
    def has_parts(self) -> bool:
        """Whether a session that exceeds a limit closes in parts: true if neither a start nor an end type is set."""
        return not self.start and not self.end

    @property
    def names(self) -> tuple[str, str, str]:
        """The names of the kinds 0, 1 and 2: the types of start, entry and end. Several entry types are joined by commas."""
        return self.start, ", ".join(self.entries), self.end
