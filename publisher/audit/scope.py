"""Freezes the scope of an audit at its beginning: the kept batches and the position of each lane."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple, Self

import psycopg

from contract.cursor import Cursor
from db.connection import snapshot
from db.statements import queries
from publisher.outbox.erased import newest_erasure
from service.commands.times import shown_time
from service.errors import SettingsError

_DELIVERIES = queries("publisher.audit", "deliveries")
_LEDGER = queries("publisher.audit", "ledger")

RANGE_SESSIONS = 20_000
_RANGE_BATCHES = 2_000
_FOREVER = datetime(9999, 1, 1, tzinfo=UTC)


class RecordedResume(NamedTuple):
    """A move of a lane's cursor from `after` to `to` by `publisher resume`; `seq`: the lane's transaction for it."""

    epoch: int
    lane: int
    seq: int
    after: Cursor
    to: Cursor
    note: str


class AuditedRange(NamedTuple):
    """Batches `first` to `last`, both inclusive, that are checked together. `sessions`: their number of sessions according to the
    ledger."""

    first: int
    last: int
    sessions: int


@dataclass(frozen=True, slots=True)
class Scope:
    """The batches `first` to `last`, both inclusive (none if first > last), and the state of the lanes.

    `ledger_from`, `rows_from`: the oldest batch that the ledger and session_output keep. `kept`: first and last batch of each range of
    audited batches whose rows are kept; between two ranges retention has dropped partitions. `to_end`: whether the limits leave out no
    later batch. `erasures`: number of the newest row of `outbox.erased`.
    """

    ledger_from: int | None
    rows_from: int | None
    first: int
    last: int
    kept: list[tuple[int, int]]
    to_end: bool
    epochs: list[tuple[int, int, int]]
    cursors: dict[tuple[int, int], Cursor]
    resumes: list[RecordedResume] = field(default_factory=list)
    erasures: int = 0

    @property
    def complete(self) -> bool:
        """Whether nothing was pruned or left out before the last batch."""
        return self.first == 1 and len(self.kept) <= 1

    @property
    def last_kept_from(self) -> int:
        """The first batch of the newest range in `kept`."""
        return self.kept[-1][0] if self.kept else self.first

    def holds(self, first: int, last: int) -> bool:
        """Whether the rows of all these batches are kept and audited."""
        return any(begin <= first and last <= end for begin, end in self.kept)

    def reads(self, batch_id: int) -> bool:
        """Whether the comparison with the topics covers this batch: its rows are kept, or it was committed after the scope was frozen."""
        return self.holds(batch_id, batch_id) or (self.to_end and batch_id > self.last)

    def still_kept(self, now: "Scope") -> bool:
        """Whether `now`, a scope frozen later with the same limits, still has all rows of this scope."""
        return self.erasures == now.erasures and all(now.holds(begin, end) for begin, end in self.kept)

    def copies(self, epoch: int, lane: int, row: Cursor, parked_after: int | None = None) -> int:
        """Return how often a lane may have sent a row. Between two resumes a lane only moves forward.

        `parked_after`: the lane's newest transaction when the row was parked; no later transaction has the row.
        """
        begin, times = Cursor(0), 0
        for resume in self.resumes:
            if (resume.epoch, resume.lane) != (epoch, lane):
                continue
            if parked_after is not None and parked_after < resume.seq:
                return times
            times += begin < row <= resume.after
            begin = resume.to
        return times if parked_after is not None else max(1, times + (begin < row))

    def epoch_of(self, batch_id: int) -> int | None:
        """Return the epoch of a batch."""
        number = bisect_right([from_batch for _, from_batch, _ in self.epochs], batch_id)
        return self.epochs[number - 1][0] if number else None

    def lanes_of(self, batches: AuditedRange) -> range:
        """Return every lane in which these batches may have rows."""
        ends = [*[from_batch for _, from_batch, _ in self.epochs[1:]], None]
        return range(
            max(
                (
                    lanes
                    for (_, from_batch, lanes), end in zip(self.epochs, ends, strict=True)
                    if from_batch <= batches.last and (end is None or end > batches.first)
                ),
                default=0,
            )
        )

    def delivered(self, epoch: int, lane: int, row: Cursor) -> bool:
        """Whether the lane's mirror has passed a row."""
        cursor = self.cursors.get((epoch, lane))
        return cursor is not None and row <= cursor

    def as_json(self) -> dict[str, Any]:
        """Return the scope for the state of a resumable audit."""
        return {
            "ledger_from": self.ledger_from,
            "rows_from": self.rows_from,
            "first": self.first,
            "last": self.last,
            "kept": self.kept,
            "to_end": self.to_end,
            "erasures": self.erasures,
            "epochs": self.epochs,
            "cursors": [
                [epoch, lane, cursor.batch_id, cursor.session_key]
                for (epoch, lane), cursor in self.cursors.items()
            ],
            "resumes": [
                [
                    r.epoch,
                    r.lane,
                    r.seq,
                    r.after.batch_id,
                    r.after.session_key,
                    r.to.batch_id,
                    r.to.session_key,
                    r.note,
                ]
                for r in self.resumes
            ],
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Self:
        """Parse the result of `as_json`."""
        return cls(
            **value
            | {
                "kept": [tuple(run) for run in value["kept"]],
                "epochs": [tuple(epoch) for epoch in value["epochs"]],
                "cursors": {(e, lane): Cursor(b, k) for e, lane, b, k in value["cursors"]},
                "resumes": [
                    RecordedResume(e, n, s, Cursor(ab, ak), Cursor(tb, tk), note)
                    for e, n, s, ab, ak, tb, tk, note in value["resumes"]
                ],
            }
        )


class Limits(NamedTuple):
    """The limits given to the command; None: no limit."""

    from_batch: int | None = None
    to_batch: int | None = None
    since: datetime | None = None
    until: datetime | None = None


def read_scope(connection: psycopg.Connection[Any], limits: Limits) -> Scope:
    """Read and freeze the scope in one snapshot. Raises SettingsError if the limits contradict each other."""
    if limits.from_batch is not None and limits.to_batch is not None and limits.from_batch > limits.to_batch:
        raise SettingsError(f"--from-batch {limits.from_batch} is after --to-batch {limits.to_batch}")
    if limits.since is not None and limits.until is not None and limits.since >= limits.until:
        raise SettingsError(
            f"--since {shown_time(limits.since)} is not before --until {shown_time(limits.until)}"
        )
    with snapshot(connection):
        row = connection.execute(
            _LEDGER["scope"], {"since": limits.since or _FOREVER, "until": limits.until or _FOREVER}
        ).fetchone()
        ledger_from, ledger_to, partitions, since, before = row or (None, None, [], None, None)
        epochs = connection.execute(_LEDGER["epochs"]).fetchall()
        cursors = connection.execute(_DELIVERIES["cursors"]).fetchall()
        resumes = connection.execute(_DELIVERIES["resumes"]).fetchall()
        erasures = newest_erasure(connection)
    end = ledger_to or 0
    rows_from = max(1, partitions[0][0]) if partitions else None
    # Retention drops rows before it prunes their ledger rows, so the ledger must have every batch from the oldest kept row on.
    kept = end + 1 if ledger_from is None or rows_from is None else rows_from
    if limits.since is not None and since is None:
        since = end + 1
    first = max(kept, limits.from_batch or 1, since or 1)
    last = min(end, limits.to_batch or end, before or 0)
    return Scope(
        ledger_from=ledger_from,
        rows_from=rows_from,
        first=first,
        last=last,
        kept=kept_ranges(partitions, first, last),
        to_end=last == end,
        epochs=epochs,
        cursors={(epoch, lane): Cursor(batch, key) for epoch, lane, batch, key in cursors},
        resumes=[
            RecordedResume(epoch, lane, seq, Cursor(after, after_key), Cursor(to, to_key), note)
            for epoch, lane, seq, after, after_key, to, to_key, note in resumes
        ],
        erasures=erasures,
    )


def kept_ranges(partitions: Sequence[Sequence[int]], first: int, last: int) -> list[tuple[int, int]]:
    """Return the batches from `first` to `last` that these partitions (first and last batch) hold. Adjacent ranges are joined."""
    runs: list[tuple[int, int]] = []
    for begin, end in partitions:
        end = min(end, last)
        begin = max(begin, first)
        if begin > end:
            continue
        if runs and runs[-1][1] == begin - 1:
            runs[-1] = (runs[-1][0], end)
        else:
            runs.append((begin, end))
    return runs


def ranges(connection: psycopg.Connection[Any], kept: list[tuple[int, int]]) -> Iterator[AuditedRange]:
    """Yield ranges that cover these batches without gaps, even if ledger rows are missing. The sessions of one range easily fit in
    memory."""
    for begin, last in kept:
        while begin <= last:
            found = _range(connection, begin, last)
            yield found
            begin = found.last + 1


def _range(connection: psycopg.Connection[Any], begin: int, last: int) -> AuditedRange:
    rows = connection.execute(
        _LEDGER["ranges"],
        {"from_batch": begin, "to_batch": last, "batches": _RANGE_BATCHES},
    ).fetchall()
    sessions = 0
    for batch_id, count in rows:
        sessions += count
        if sessions >= RANGE_SESSIONS:
            return AuditedRange(begin, batch_id, sessions)
    return AuditedRange(begin, rows[-1][0] if len(rows) == _RANGE_BATCHES else last, sessions)
