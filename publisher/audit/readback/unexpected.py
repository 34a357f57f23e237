"""Judges records that no audited row explains: each is unexpected, or counted under a name. Pure."""

from collections.abc import Callable

from publisher.audit.erased import ErasedEnds
from publisher.audit.readback.digest import ReceivedOutput, partition_number
from publisher.audit.scope import Scope

UnexpectedRecordRule = Callable[[ReceivedOutput], str | None]
"""Returns the name of the counter for a record that no audited row explains; None if the record is unexpected."""


def unexpected_record_rule(
    scope: Scope,
    inputs: list[str],
    erased: ErasedEnds,
    revision: int | None,
    bounds: list[dict[str, dict[str, int]]],
) -> UnexpectedRecordRule:
    """Return the rule of a scope. `inputs`: ids of the input topics by number.

    `revision`, `bounds`: revision of the newest kept range of batches, and lower bounds `{topic id: {partition: offset}}` of the sessions'
    ends that this range and later batches may have (`input` in ledger.sql).

    A record of an erased output is never unexpected. If any batch before the last one was pruned or left out, a record is unexpected only
    if it has this revision and its session ends at or above all bounds of its partition: any other record may belong to a batch outside
    the audit. If later batches were left out, no record is unexpected.
    """
    lower: dict[int, int] = {}
    gone: dict[tuple[int, int], frozenset[int]] = {}
    for number, topic_id in enumerate(inputs):
        for bound in bounds:
            for partition, offset in bound.get(topic_id, {}).items():
                partition_id = partition_number(number, int(partition))
                lower[partition_id] = max(offset, lower.get(partition_id, 0))
    numbers = {topic_id: number for number, topic_id in enumerate(inputs)}
    for (name, end), revisions in erased.items():
        topic_id, _, partition = name.rpartition("/")
        if topic_id in numbers:
            gone[partition_number(numbers[topic_id], int(partition)), end] = revisions

    def counter(record: ReceivedOutput) -> str | None:
        if record.revision in gone.get((record.input_partition, record.input_offset), ()):
            return "records_of_erased_outputs"
        if scope.to_end and scope.complete:
            return None
        after = record.revision == revision and record.input_offset >= lower.get(record.input_partition, 0)
        return None if scope.to_end and after else "records_out_of_scope"

    return counter
