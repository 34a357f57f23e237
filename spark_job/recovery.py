"""Where a start resumes: the decision of design §3.4, made before Spark reads anything. Pure.

This version goes on with a generation whose directory continues the ledger, and opens the first one. In every other case it stops and
explains; nothing is guessed.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from db.errors import ContinuityError
from spark_job.checkpoint import DirectoryState
from spark_job.ledger import Generation, StreamBatch
from spark_job.offsets import Offsets


@dataclass(frozen=True)
class Resumption:
    """What a start found, for the report."""

    kind: str  # "fresh", "unused generation" or "checkpoint"
    spark_batch: int  # the next batch that Spark will run
    resumes_at: Offsets

    def text(self) -> str:
        """One line for people."""
        if self.kind == "checkpoint":
            return f"restored from the checkpoint: Spark batch {self.spark_batch} is next"
        if self.kind == "unused generation":
            return "the newest generation has committed nothing yet and is used again"
        return "fresh start: the first generation of this outbox"


def resume(
    generation: Generation,
    newest: StreamBatch | None,
    directory: DirectoryState,
    planned_end: Callable[[int], Offsets],
    path: str,
) -> Resumption:
    """Decide whether the directory continues the ledger.

    `newest`: the generation's newest stream row; `planned_end(n)`: the offset log's end of Spark batch n; `path`: for messages.
    Raises ContinuityError with the explanation where it does not.
    """
    planned, committed = directory.planned, directory.committed
    if newest is None:
        # A crash between the generation's insert and its first batch changes nothing: whatever Spark planned is planned again.
        if committed is None and planned in (None, 0):
            return Resumption("unused generation", 0, generation.start)
        raise ContinuityError(
            f"the checkpoint {path} has got to Spark batch {planned}, committed {committed}, but the ledger has no batch of generation "
            f"{generation.number}: the database was restored to an older state. Outputs of the lost batches may be in Kafka already. "
            "Restore the database to its newest state."
        )
    check_present(generation, newest, directory, path)
    n = newest.spark_batch
    before = n - 1 if n else None
    if planned is not None and (planned > n + 1 or (committed is not None and committed > n)):
        raise ContinuityError(
            f"the checkpoint {path} is ahead: it has planned Spark batch {planned} and committed {committed}, while the ledger's "
            f"newest is {n} (batch {newest.batch_id}). The database was restored or failed over to an older state. Outputs of the "
            "batches it lost may be in Kafka already. Restore the database to its newest state."
        )
    # Spark has planned n and committed n or the one before (a crash between both commits), or it has committed n and planned n + 1.
    if (planned, committed) not in ((n, before), (n, n), (n + 1, n)):
        what = f"is behind: it has planned Spark batch {planned} and committed {committed}"
        raise ContinuityError(_lost(path, generation, newest, what))
    end = planned_end(n)
    if not end.same_as(newest.end):
        what = f"is another one: its Spark batch {n} ends elsewhere ({end.differences(newest.end)})"
        raise ContinuityError(_lost(path, generation, newest, what))
    return Resumption("checkpoint", n if committed != n else n + 1, newest.end)


def check_present(
    generation: Generation, newest: StreamBatch | None, directory: DirectoryState, path: str
) -> None:
    """Raise ContinuityError when the ledger has batches of the generation and its directory has none."""
    if newest is not None and directory.planned is None:
        raise ContinuityError(_lost(path, generation, newest, "is empty or missing"))


def check_assembly(generation: Generation, assembly: Mapping[str, object], fingerprint: str) -> None:
    """Raise ContinuityError when the settings that decide what a session is differ from the generation's."""
    if fingerprint == generation.assembly_fingerprint:
        return
    changed = [
        f"{name}: {generation.assembly.get(name)!r} -> {assembly.get(name)!r}"
        for name in sorted({*assembly, *generation.assembly})
        if assembly.get(name) != generation.assembly.get(name)
    ]
    raise ContinuityError(
        f"the settings that decide what a session is changed since generation {generation.number} was opened: {'; '.join(changed)}. "
        "Its checkpoint was made with the old ones. Put them back."
    )


def check_topics(generation: Generation, topic_ids: Mapping[str, str]) -> None:
    """Raise ContinuityError when a topic of the generation has another id now. `topic_ids`: {topic: topic id}."""
    for old_id, topic in generation.topics.items():
        now = topic_ids.get(topic)
        if now is not None and now != old_id:
            raise ContinuityError(
                f"input topic {topic!r} was deleted and made again: its id is {now}, generation {generation.number} reads {old_id}. The "
                "offsets of the old one mean nothing in the new one, and sessions open in it cannot be completed."
            )


def _lost(path: str, generation: Generation, newest: StreamBatch, what: str) -> str:
    return (
        f"the checkpoint {path} {what}; the ledger's newest batch of generation {generation.number} is Spark batch {newest.spark_batch} "
        f"(batch {newest.batch_id}). Going on from it would lose or repeat sessions. Put the directory back as it was."
    )
