"""Does a checkpoint directory continue the ledger? The comparison on which every restart rests (design §3.4). Pure."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from db.errors import ContinuityError
from spark_job.ledger import StreamBatch
from spark_job.offsets import Offsets
from spark_job.position import Position


@dataclass(frozen=True)
class DirectoryState:
    """How far a checkpoint directory has got: the newest batch planned and committed, None where there is none."""

    planned: int | None
    committed: int | None


@dataclass(frozen=True)
class Fit:
    """How a generation's directory and its newest ledger row fit together.

    `continues`: Spark goes on with `spark_batch`, whose input starts at `reads_from`. `unused`: neither has anything yet. `lost`: the
    directory is of no use. `ahead`: Spark has committed what the ledger does not have, so the database has lost its end.
    """

    kind: Literal["continues", "unused", "lost", "ahead"]
    spark_batch: int
    reads_from: Offsets
    text: str  # which batch is next, or what is wrong


def fit(
    position: Position, directory: DirectoryState, planned_end: Callable[[int], Offsets], path: str
) -> Fit:
    """Compare. `planned_end(n)`: the offset log's end of Spark batch n, ContinuityError where unreadable; `path`: for messages."""
    planned, committed = directory.planned, directory.committed
    newest = position.newest
    if newest is None:
        # A crash between the generation's insert and its first batch changes nothing: whatever Spark planned is planned again.
        if committed is None and planned in (None, 0):
            return Fit("unused", 0, position.generation.start, "Spark batch 0")
        return _ahead(position, directory, path, "nothing of this generation")
    n = newest.spark_batch
    if planned is None:
        return _lost(position, f"the checkpoint {path} is empty or missing")
    ahead = planned > n + 1 or (committed is not None and committed > n)
    # Spark has planned n and committed n or the one before (a crash between both commits), or it has committed n and planned n + 1.
    before = n - 1 if n else None
    if not ahead and (planned, committed) not in ((n, before), (n, n), (n + 1, n)):
        return _lost(
            position,
            f"the checkpoint {path} is behind: it has planned Spark batch {planned} and committed {committed}",
        )
    try:
        end = planned_end(n)
    except ContinuityError as error:
        # Spark keeps only its newest entries: one that is far ahead has none of n any more.
        return _ahead(position, directory, path, _name(newest)) if ahead else _lost(position, str(error))
    if not end.same_as(newest.end):
        return _lost(
            position,
            f"the checkpoint {path} is another one: its Spark batch {n} ends elsewhere ({end.differences(newest.end)})",
        )
    if ahead:
        return _ahead(position, directory, path, _name(newest))
    if committed == n:
        return Fit("continues", n + 1, newest.end, f"Spark batch {n + 1}")
    return Fit("continues", n, newest.start, f"Spark batch {n}, whose outputs are in the outbox already,")


def _name(newest: StreamBatch) -> str:
    return f"Spark batch {newest.spark_batch} (batch {newest.batch_id})"


def _lost(position: Position, text: str) -> Fit:
    return Fit("lost", 0, position.safe, text)


def _ahead(position: Position, directory: DirectoryState, path: str, ledger: str) -> Fit:
    text = (
        f"the checkpoint {path} is ahead: it has planned Spark batch {directory.planned} and committed {directory.committed}, while the "
        f"ledger's newest is {ledger}. The database was restored or failed over to an older state"
    )
    return Fit("ahead", 0, position.safe, text)
