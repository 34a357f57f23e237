"""What each task is told of its partitions: only what the position says, and no more lenient than was asked for."""

from dataclasses import replace

from spark_job.assembly.slices import Slice
from spark_job.input.offsets import Offsets, TopicPartition
from spark_job.input.topics import InputTopics
from spark_job.ledger.generations import Generation
from spark_job.ledger.open_partitions import OpenPartition, OpenPartitions
from spark_job.ledger.position import InputPosition, StreamRow
from spark_job.ledger.rules_lineage import Lineage
from spark_job.ledger.slice_building import slices_of
from tests.support.histories.tasks import NOW

P0, P1, P2 = (TopicPartition("id", partition) for partition in range(3))
BEGIN = Offsets({P0: 100, P1: 50})
OPEN = OpenPartitions(
    {
        P0: OpenPartition(90, 1, 2, 10, "3-digest"),
        P1: replace(OpenPartition(40, 0, 0, 0, None), upgraded=True),
    }
)
AT = InputPosition(Generation(1, BEGIN, OPEN, Lineage(), {"id": "in"}, "upgrade", "skip", 0, {}), None)
TOPICS = InputTopics({"in": "id"}, {"in": [0, 1, 2]})


def slices(
    at: InputPosition,
    end: dict[TopicPartition, int],
    *,
    accept_at: Offsets | None = None,
    committed: InputPosition | None = None,
) -> dict[int, Slice]:
    return slices_of(at, at.end, Offsets(end), TOPICS, accept_at or Offsets(), committed or at)


def after(at: InputPosition, end: dict[TopicPartition, int], opened: OpenPartitions) -> InputPosition:
    return replace(at, newest=StreamRow(7, Offsets({**at.end, **end}), opened, NOW))


def test_a_task_is_told_of_partitions_with_new_records_what_is_open_there() -> None:
    found = slices(AT, {P0: 120, P1: 50, P2: 9})
    assert {source: (each.start, each.end, each.safe, each.digest) for source, each in found.items()} == {
        0: (100, 120, 90, "3-digest"),
        2: (0, 9, 0, ""),
    }


def test_a_task_is_told_what_a_new_run_begins_with_should_the_commit_before_fail() -> None:
    ahead = after(AT, {P0: 120}, OpenPartitions({P0: OpenPartition(110, 1, 1, 5, "later")}))
    found = slices(ahead, {P0: 130, P1: 60}, committed=AT)
    assert (found[0].digest, found[0].committed_digest) == ("later", "3-digest")
    assert (found[1].digest, found[1].committed_digest) == ("", ""), "of what nobody knows there is no file"


def test_what_differs_is_accepted_where_the_run_began_and_nowhere_else() -> None:
    """What a run has written itself was never in question."""
    at_start = slices(AT, {P0: 120}, accept_at=BEGIN)
    assert at_start[0].accept_differing
    later = slices(after(AT, {P0: 120}, OPEN), {P0: 130, P1: 60}, accept_at=BEGIN)
    assert (later[0].accept_differing, later[1].accept_differing) == (False, True)
    assert not slices(AT, {P0: 120})[0].accept_differing


def test_each_partition_of_an_upgraded_outbox_keeps_its_letters_until_it_has_records() -> None:
    """A quiet one may have its first records long after the others, in a later generation even."""
    assert not slices(AT, {P0: 120})[0].keep_timed_out
    later = after(AT, {P0: 120}, OpenPartitions({P1: OPEN[P1]}))
    assert slices(later, {P1: 60})[1].keep_timed_out
    next_generation = InputPosition(
        replace(later.generation, number=2, reason="new_topic", open=later.open), None
    )
    assert slices(next_generation, {P1: 60})[1].keep_timed_out
    assert OpenPartitions.from_json(later.open.to_json())[P1].unproven(45).upgraded
