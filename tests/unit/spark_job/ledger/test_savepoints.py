"""What a savepoint says of itself, from offsets alone."""

from datetime import UTC, datetime

from spark_job.input.offsets import Offsets, TopicPartition
from spark_job.ledger.lineage import Lineage
from spark_job.ledger.open_partitions import OpenPartition, OpenPartitions
from spark_job.ledger.savepoints import Savepoint

P0, P1, P2 = (TopicPartition("id", partition) for partition in range(3))
SAVEPOINT = Savepoint(
    name="x",
    generation=2,
    batch_id=7,
    end=Offsets({P0: 15, P1: 20}),
    open=OpenPartitions({P0: OpenPartition(10, 2, 4, 90, "2-digest")}),
    lineage=Lineage(),
    assembly={},
    topics={"id": "in"},
    revision=0,
    created_at=datetime(2026, 1, 1, tzinfo=UTC),
)


def test_it_needs_kafka_from_its_oldest_open_session_on_and_from_its_end_where_none_is_open() -> None:
    assert SAVEPOINT.safe == Offsets({P0: 10, P1: 20})
    assert SAVEPOINT.to_json()["open_sessions"] == 2


def test_it_lives_while_kafka_has_its_safe_offsets() -> None:
    assert SAVEPOINT.expired({"in": "id"}, Offsets({P0: 10, P1: 0})) == []


def test_it_has_expired_where_kafka_begins_later() -> None:
    assert SAVEPOINT.expired({"in": "id"}, Offsets({P0: 11, P1: 20})) == [
        "in/0: needs offset 10, Kafka's first is 11"
    ]
    assert SAVEPOINT.missing(Offsets({P0: 11, P1: 21})) == {P0: (10, 11), P1: (20, 21)}


def test_a_partition_added_later_is_needed_from_its_first_record_on() -> None:
    assert SAVEPOINT.missing(Offsets({P2: 0})) == {}
    assert SAVEPOINT.missing(Offsets({P2: 3})) == {P2: (0, 3)}


def test_another_input_topic_has_nothing_to_do_with_it() -> None:
    assert SAVEPOINT.missing(Offsets({TopicPartition("new", 0): 50})) == {}


def test_it_has_expired_with_its_topic() -> None:
    assert "'in' was deleted" in SAVEPOINT.expired({"in": "another id"}, Offsets())[0]
    assert "'in' was deleted" in SAVEPOINT.expired({}, Offsets())[0]


def test_its_life_counts_what_kafka_has_after_it() -> None:
    life = SAVEPOINT.life({"in": "id"}, Offsets({P0: 0, P1: 0, P2: 3}), Offsets({P0: 18, P1: 20, P2: 7}))
    assert (life.state, life.events) == ("expired", 3 + 0 + 4), (
        "the first records of a partition added later are gone"
    )
    life = SAVEPOINT.life({"in": "id"}, Offsets({P0: 10, P1: 0}), Offsets({P0: 18, P1: 25}))
    assert life.to_json() == {"state": "alive", "reasons": [], "events_after": 8}
