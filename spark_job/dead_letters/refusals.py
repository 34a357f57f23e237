"""Which letters are not retried now, and why: letters that are discarded, resolved or removed, and letters whose events the job judges
elsewhere. Pure.

`sessions_of_letters` refuses letters whose events are not a whole session.
"""

from collections.abc import Mapping

from spark_job.dead_letters import store
from spark_job.dead_letters.store import StoredLetter
from spark_job.input.offsets import Offsets

READ_ELSEWHERE = (
    "other events of its session were read: they are in an output, in another letter, still open, or erased. "
    "`spark-job savepoint restore --policy reissue` reads the input again"
)
GONE = "it no longer exists: retention removed it, or it was erased"


def refusal(
    letter: StoredLetter, standing: Mapping[str, object], end: Offsets, topics: Mapping[str, str]
) -> str | None:
    """Return why a letter may not be retried now; None if it may.

    `standing`: the columns of `standings` in sql/letters.sql; `end` and `topics`, {topic id: topic}: of the current position.
    """
    if standing["state"] == "resolved":
        return f"batch {standing['resolved_batch']} has resolved it"
    if standing["state"] != store.OPEN:
        return f"it is {standing['state']}"
    # Nothing more is read of a topic that was deleted and created again.
    is_replaced = letter.where.topic_id not in topics and letter.topic in topics.values()
    if letter.closing_offset >= end.at(letter.where) and not is_replaced:
        return (
            f"it closes at offset {letter.closing_offset} of {letter.topic}/{letter.partition}, which the job is about to read again "
            f"(it has read up to {end.at(letter.where)}) and will judge again; try again after that"
        )
    if standing["newer_letter"] is not None:
        return f"letter {standing['newer_letter']} is a newer judgement of the same events: retry that one, or discard it first"
    return None
