"""Decides which partitions of session_output may be dropped, and why the others may not. Pure; operators read its messages."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum


class DropVerdict(StrEnum):
    """The decision on a partition."""

    DROP = "drop"
    REFUSED = "refused"  # due, but something still needs it
    KEPT = "kept"  # not due
    IN_USE = "in use"  # holds the newest batch, or will hold later ones


@dataclass(frozen=True, slots=True)
class Partition:
    """Batches `first` to `end` - 1, `size` bytes on disk. `newest_at`, `age_s`: of its newest batch, None without batches."""

    name: str
    first: int
    end: int
    size: int
    newest_at: datetime | None
    age_s: float | None


@dataclass(frozen=True, slots=True)
class LaneProgress:
    """A lane of an epoch. `through`: the last batch that it has delivered completely. `to_batch`: None while the epoch continues.

    `stopped_reason`, `stopped_why`: as in LaneStatus.
    """

    epoch: int
    lane: int
    from_batch: int
    to_batch: int | None
    through: int
    holder: str | None
    stopped_reason: str | None
    stopped_why: str | None


@dataclass(frozen=True, slots=True)
class ReplayNeed:
    """The batches that a replay still has to read, from `from_batch` to `to_batch` inclusive. Once it is cancelled or done, its process may
    still send rows that it has read."""

    replay_id: int
    state: str
    from_batch: int
    to_batch: int


@dataclass(frozen=True, slots=True)
class OpenAtUpgrade:
    """Batches with outputs whose input in one partition goes beyond `safe_offset`: from there on, sessions were open at the upgrade to
    0005."""

    topic_id: str
    partition: int
    safe_offset: int
    batches: int
    first: int
    last: int


@dataclass(frozen=True)
class Needs:
    """Who needs rows.

    `parked`: {batch id: number of parked rows}; `open_at_upgrade`: {partition name: the batches in it that the job's next batch reads}.
    """

    newest_batch: int
    lanes: Sequence[LaneProgress] = ()
    parked: Mapping[int, int] = field(default_factory=dict)
    replays: Sequence[ReplayNeed] = ()
    open_at_upgrade: Mapping[str, Sequence[OpenAtUpgrade]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Decision:
    """`due`: why the partition should be dropped, empty if it should not. `reasons`: why it cannot be, each with what to do about it."""

    partition: Partition
    verdict: DropVerdict
    due: str = ""
    reasons: tuple[str, ...] = ()


def closed(partition: Partition, newest_batch: int) -> bool:
    """Whether no more batches can come into the partition: batch ids only grow, and a later batch is committed."""
    return partition.end <= newest_batch


def plan_drops(
    partitions: Sequence[Partition],
    needs: Needs,
    keep_s: int | None,
    keep_bytes: int | None,
    letters_bytes: int = 0,
) -> list[Decision]:
    """Return a decision for each partition, oldest first.

    By time: a partition is due if its newest batch is older than `keep_s` seconds. By size: the oldest partitions are due until the rest,
    with `letters_bytes` of dead letters, takes at most `keep_bytes` bytes; a refused partition still counts. None: no limit.
    """
    total = letters_bytes + sum(partition.size for partition in partitions)
    decisions = []
    for partition in sorted(partitions, key=lambda p: p.first):
        if not closed(partition, needs.newest_batch):
            decisions.append(Decision(partition, DropVerdict.IN_USE))
            continue
        due = _due(partition, total, keep_s, keep_bytes)
        if not due:
            decisions.append(Decision(partition, DropVerdict.KEPT))
            continue
        reasons = needed_by(partition, needs)
        if reasons:
            decisions.append(Decision(partition, DropVerdict.REFUSED, due, reasons))
            continue
        total -= partition.size
        decisions.append(Decision(partition, DropVerdict.DROP, due))
    return decisions


def needed_by(partition: Partition, needs: Needs) -> tuple[str, ...]:
    """Return who still needs a partition's rows, each with what to do about it; empty if nobody does.

    This is the first of two checks: `outbox.drop_partition` (db/schema.sql) checks the same rules again in the transaction of the drop.
    """
    return (
        *_undelivered(partition, needs.lanes),
        *_parked(partition, needs.parked),
        *_replayed(partition, needs.replays),
        *(_open_at_upgrade(need) for need in needs.open_at_upgrade.get(partition.name, ())),
    )


def _due(partition: Partition, total: int, keep_s: int | None, keep_bytes: int | None) -> str:
    """Why a partition should be dropped, empty if it should not. A partition without any ledger row is older than every `keep_s`."""
    if keep_s is not None and (partition.age_s is None or partition.age_s > keep_s):
        age = "no batch" if partition.age_s is None else f"newest batch {partition.age_s:.0f} s old"
        return f"{age}, keep_s = {keep_s}"
    if keep_bytes is not None and total > keep_bytes:
        return f"{total} bytes in all, keep_bytes = {keep_bytes}"
    return ""


def _undelivered(partition: Partition, lanes: Sequence[LaneProgress]) -> list[str]:
    """One line for each epoch with lanes that have not passed the partition."""
    behind: dict[int, list[LaneProgress]] = {}
    for lane in lanes:
        last = partition.end - 1 if lane.to_batch is None else min(partition.end - 1, lane.to_batch)
        if max(partition.first, lane.from_batch) <= last and lane.through < last:
            behind.setdefault(lane.epoch, []).append(lane)
    return [_behind(epoch, found) for epoch, found in behind.items()]


def _behind(epoch: int, lanes: Sequence[LaneProgress]) -> str:
    slowest = min(lanes, key=lambda lane: lane.through)
    names = ", ".join(str(lane.lane) for lane in lanes[:8]) + (", …" if len(lanes) > 8 else "")
    text = (
        f"not delivered: {'lane' if len(lanes) == 1 else 'lanes'} {names} of epoch {epoch}, the slowest (lane {slowest.lane}) has "
        f"delivered up to batch {slowest.through}, held by {slowest.holder or 'nobody'}"
    )
    if slowest.stopped_why is not None:
        return f"{text}, stopped: {slowest.stopped_reason}. Fix that; `publisher status` shows every lane"
    if slowest.holder is None:
        return f"{text}. Start `publisher run`"
    retrying = "" if slowest.stopped_reason is None else f", {slowest.stopped_reason}"
    return f"{text}{retrying}. Wait for it; `publisher status` shows how far it is"


def _parked(partition: Partition, parked: Mapping[int, int]) -> list[str]:
    here = {
        batch: rows for batch, rows in parked.items() if partition.first <= batch < partition.end and rows
    }
    if not here:
        return []
    return [
        f"{sum(here.values())} parked rows in batches {min(here)} to {max(here)}: `publisher parked list`, then requeue or discard them"
    ]


def _replayed(partition: Partition, replays: Sequence[ReplayNeed]) -> list[str]:
    return [
        f"replay {replay.replay_id} ({replay.state}) still reads batches {replay.from_batch} to {replay.to_batch}: "
        + (
            f"let it end, or `publisher replay cancel {replay.replay_id}`"
            if replay.state in ("running", "paused")
            else "its process may still send them, until its lease ends in at most two minutes"
        )
        for replay in replays
        if max(replay.from_batch, partition.first) <= min(replay.to_batch, partition.end - 1)
    ]


def _open_at_upgrade(need: OpenAtUpgrade) -> str:
    return (
        f"a session was open in {need.topic_id}/{need.partition} since offset {need.safe_offset} when the schema was upgraded, and the job "
        f"has committed no batch since. Its first batch reads the outputs after that offset, in {need.batches} batches from {need.first} "
        f"to {need.last}. Start `spark-job run`"
    )
