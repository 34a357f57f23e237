"""Does a batch continue the ledger? Why a repeated batch is harmless and a foreign checkpoint impossible (design §3.3 step 2)."""

from dataclasses import dataclass

from db.errors import ContinuityError
from spark_job.ledger import Generation, StreamBatch
from spark_job.offsets import Offsets


@dataclass(frozen=True)
class BatchRange:
    """Start (inclusive) and end (exclusive) of a Spark batch, out of the checkpoint's offset log."""

    start: Offsets
    end: Offsets


def is_committed(
    generation: Generation, newest: StreamBatch | None, spark_batch: int, planned: BatchRange
) -> bool:
    """Tell whether the ledger has `spark_batch` already (True) or ends just where it starts (False).

    `newest`: the generation's newest stream row, read under the writer lock. Raises ContinuityError in every other case.
    """
    where = f"generation {generation.number}, Spark batch {spark_batch}"
    if newest is None:
        if spark_batch == 0 and planned.start.same_as(generation.start):
            return False
        raise ContinuityError(
            f"{where}: the ledger has no batch of this generation yet, so the first one must be 0 and start at "
            f"{generation.start.to_json()}, not {planned.start.to_json()}. The database was restored to an older state, or the "
            "checkpoint directory is another one. Nothing was written."
        )
    if newest.spark_batch == spark_batch - 1:
        if newest.end.same_as(planned.start):
            return False
        raise ContinuityError(
            f"{where} starts where batch {newest.batch_id} did not end: {planned.start.differences(newest.end)}. "
            "Checkpoint and ledger belong to different histories. Nothing was written."
        )
    if newest.spark_batch == spark_batch:
        if newest.start.same_as(planned.start) and newest.end.same_as(planned.end):
            return True
        raise ContinuityError(
            f"{where} was committed as batch {newest.batch_id} with another range: "
            f"start {planned.start.differences(newest.start) or 'same'}, end {planned.end.differences(newest.end) or 'same'}. "
            "The checkpoint was rolled back or copied. Nothing was written."
        )
    raise ContinuityError(
        f"{where}: the ledger's newest is Spark batch {newest.spark_batch} (batch {newest.batch_id}). The "
        + (
            "checkpoint was rolled back"
            if newest.spark_batch > spark_batch
            else "database was restored to an older state"
        )
        + ". Nothing was written."
    )
