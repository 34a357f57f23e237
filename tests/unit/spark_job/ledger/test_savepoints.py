"""What a savepoint says of itself, from offsets alone."""

from datetime import UTC, datetime

from spark_job.input.offsets import Offsets, TopicPartition
from spark_job.ledger.open_partitions import OpenPartition, OpenPartitions
from spark_job.ledger.rules_lineage import Lineage
from spark_job.ledger.savepoints import Savepoint

P0, P1 = TopicPartition("id", 0), TopicPartition("id", 1)
SAVEPOINT = Savepoint(
    name="x",
    generation=2,
    batch_id=7,
    end=Offsets({P0: 15, P1: 20}),
    open=OpenPartitions({P0: OpenPartition(10, 2, 4, 90, "3-digest")}),
    lineage=Lineage(),
    assembly={},
    topics={"id": "in"},
    revision=0,
    created_at=datetime(2026, 1, 1, tzinfo=UTC),
)


def test_it_needs_kafka_from_its_oldest_open_session_on_and_from_its_end_where_none_is_open() -> None:
    assert SAVEPOINT.safe == Offsets({P0: 10, P1: 20})
    assert SAVEPOINT.to_json()["open_sessions"] == 2
