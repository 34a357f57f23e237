"""A record of an output topic, as the loop hands it out."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from operator import methodcaller
from types import TracebackType
from typing import NamedTuple

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Message

from contract.positions import OutboxId, parse_position

Header = tuple[str, bytes | None]

_MOST_INT = 2**31 - 1
# The most bytes of a header value. The publisher's own have less than 80; the consumer's tables and index must have room for it.
_MOST_BYTES = 200
# If a name is not UTF-8, `Message.headers()` returns a list but also sets an exception. `methodcaller` then raises SystemError.
_headers = methodcaller("headers")


class NamedPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"


@dataclass(slots=True, eq=False)
class Output:
    """One output. Use it as a context manager: if the block raises, the loop hands the output out again, or sets it aside after `attempts`.

    `outbox_id`: None if no outbox sent the record as an output (foreign records, tombstones of `publisher erase`) or its headers cannot be
    read. `replay`: the uuid of the replay that sent this copy. `replaces`: the revision of this output that was consumed before, None if
    none was. `unreadable`: why the loop sets the record aside without handing it out: its headers cannot be read, or the consumer no longer
    knows whether it consumed this replayed output.
    """

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()
    timestamp_ms: int | None = None
    leader_epoch: int | None = None
    outbox_id: OutboxId | None = None
    revision: int = 0
    replay: str | None = None
    replaces: int | None = None
    unreadable: str | None = None
    error: Exception | None = None

    @property
    def named_partition(self) -> NamedPartition:
        """The topic partition of the record."""
        return NamedPartition(self.topic, self.partition)

    def __enter__(self) -> None:
        self.error = None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if not isinstance(error, Exception):
            return False
        self.error = error
        return True


def output_of(message: Message) -> Output:
    """Make an Output from a record and its headers."""
    kind, timestamp_ms = message.timestamp()
    output = Output(
        message.topic() or "",
        _number(message.partition()),
        _number(message.offset()),
        message.key(),
        message.value(),
        timestamp_ms=None if kind == TIMESTAMP_NOT_AVAILABLE else timestamp_ms,
        leader_epoch=message.leader_epoch(),
    )
    try:
        read_headers(output, tuple(_headers(message) or ()))
    except (SystemError, ValueError) as error:
        output.unreadable = f"its headers cannot be read: {error}"
    return output


def read_headers(output: Output, headers: tuple[Header, ...]) -> None:
    """Set the output's fields from the headers. Raises ValueError."""
    output.headers = headers
    found = dict(reversed(headers))  # if a name occurs twice, the first header is the publisher's
    if (outbox_id := found.get("outbox-id")) is None:
        return
    parsed = parse_position(_text(outbox_id))
    if not isinstance(parsed, OutboxId) or max(parsed.partition, parsed.output) > _MOST_INT:
        raise ValueError(f"outbox-id {outbox_id!r} names no output")
    revision = _text(found.get("outbox-revision") or b"0")
    if not (revision.isdigit() and int(revision) <= _MOST_INT):
        raise ValueError(f"outbox-revision {revision!r} is no number")
    replay = found.get("outbox-replay")
    output.outbox_id = parsed
    output.revision = int(revision)
    output.replay = None if replay is None else _text(replay)


def runs(outputs: Iterable[Output]) -> Iterator[list[Output]]:
    """Cut outputs into runs of one partition, with rising offsets and each outbox-id once. Keeps the order within a partition."""
    open_runs: dict[NamedPartition, tuple[list[Output], set[OutboxId]]] = {}
    for output in outputs:
        run, ids = open_runs.get(output.named_partition, ([], set()))
        if run and (output.offset <= run[-1].offset or output.outbox_id in ids):
            yield run
            run, ids = [], set()
        run.append(output)
        if output.outbox_id is not None:
            ids.add(output.outbox_id)
        open_runs[output.named_partition] = run, ids
    for run, _ in open_runs.values():
        yield run


def _text(value: bytes) -> str:
    if len(value) > _MOST_BYTES:
        raise ValueError(f"one has {len(value)} bytes")
    text = value.decode("ascii")
    if not text.isprintable():
        raise ValueError(f"{text!r} is no text")
    return text


def _number(value: int | None) -> int:
    if value is None:
        raise ValueError("a record without a partition or an offset")
    return value
