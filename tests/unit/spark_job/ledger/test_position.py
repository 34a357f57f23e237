"""Where the outbox is: the newest batch's end and what is open there, else what the generation began with."""

from datetime import UTC, datetime

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_job.input.offsets import Offsets, TopicPartition
from spark_job.ledger.generations import Generation
from spark_job.ledger.open_partitions import OpenPartition, OpenPartitions
from spark_job.ledger.position import InputPosition, StreamRow
from spark_job.ledger.rules_lineage import Lineage
from spark_job.ledger.runs import Begun

P0, P1, P2 = (TopicPartition("id", partition) for partition in range(3))
START = Offsets({P0: 100, P1: 50})
END = Offsets({P0: 140, P1: 60})
OPEN = OpenPartitions({P0: OpenPartition(137, 2, 3, 90, "3-digest")})
GENERATION = Generation(3, START, OPEN, Lineage(), {"id": "topic"}, "savepoint", "skip", 0, {})
NEWEST = StreamRow(
    8, END, OpenPartitions({P1: OpenPartition(55, 1, 1, 9, "d")}), datetime(2026, 1, 1, tzinfo=UTC)
)

PARTITIONS = st.dictionaries(
    st.builds(TopicPartition, st.sampled_from(["id", "other"]), st.integers(0, 5)),
    st.builds(
        OpenPartition,
        st.integers(0, 2**62),
        st.integers(0, 9),
        st.integers(0, 9),
        st.integers(0, 9),
        st.none() | st.text("0123456789abcdef", min_size=32, max_size=32).map("3-".__add__),
        st.binary(max_size=20),
        st.booleans(),
    ),
)


@given(PARTITIONS)
def test_the_ledger_gives_back_what_is_open_as_it_was_written(
    found: dict[TopicPartition, OpenPartition],
) -> None:
    opened = OpenPartitions(found)
    assert OpenPartitions.from_json(orjson.loads(orjson.dumps(opened.to_json()))) == opened


def test_a_row_of_the_ledger_names_what_is_open_by_topic_id_and_partition() -> None:
    opened = OpenPartitions(
        {P1: OpenPartition(7, 1, 2, 30, "3-d", b"\xff"), P0: OpenPartition(4, 0, 0, 0, None)}
    )
    assert opened.to_json() == {
        "id": {
            "0": {"safe": 4, "sessions": 0, "events": 0, "bytes": 0},
            "1": {"safe": 7, "sessions": 1, "events": 2, "bytes": 30, "digest": "3-d", "tombstones": "/w=="},
        }
    }


@pytest.mark.parametrize("digest", ["0" * 32, "2-" + "0" * 32])
def test_a_digest_of_another_release_is_as_if_there_were_none(digest: str) -> None:
    """A position that the release before wrote, perhaps after the migration; a savepoint that it exported."""
    before = {"safe": 7, "sessions": 1, "events": 2, "bytes": 30, "digest": digest, "tombstones": "/w=="}
    assert OpenPartition.from_json(before) == OpenPartition(7, 1, 2, 30, None, b"\xff")


def test_the_newest_batch_says_where_the_outbox_is_and_without_one_the_generation_does() -> None:
    at, begun = InputPosition(GENERATION, NEWEST), InputPosition(GENERATION, None)
    assert (at.end, at.open, at.batch_id) == (END, NEWEST.open, 8)
    assert (begun.end, begun.open, begun.batch_id) == (START, OPEN, None)


def test_the_safe_offset_of_a_partition_is_its_end_where_nothing_is_open_and_never_above_it() -> None:
    at = InputPosition(GENERATION, NEWEST)
    assert at.safe_offsets == Offsets({P0: 140, P1: 55})
    above = OpenPartitions({P0: OpenPartition(150, 1, 0, 0, "tombstones alone")})
    assert InputPosition(Generation(**{**vars(GENERATION), "open": above}), None).safe(P0) == 100
    assert at.safe(P2) == 0


def test_a_start_says_how_much_is_read_again_at_the_most() -> None:
    opened = OpenPartitions(
        {P0: OpenPartition(137, 2, 3, 90, "d"), P1: OpenPartition(60, 1, 0, 0, "tombstones alone")}
    )
    assert Begun(GENERATION, "position", END, opened, "", 1).rebuild_offsets == 3


def test_a_start_says_how_much_a_reissue_reads_again() -> None:
    former = Offsets({P0: END.at(P0) + 40, P1: END.at(P1) - 1})
    assert Begun(GENERATION, "savepoint", END, OpenPartitions(), "", 1, former).reissued_offsets == 40
    assert Begun(GENERATION, "position", END, OpenPartitions(), "", 1, END).reissued_offsets == 0
