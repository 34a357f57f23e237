"""An outbox that lost its end: the publisher has delivered what the ledger does not know."""

from uuid import UUID, uuid4

import psycopg
import pytest

from db.connection import Connection
from service.errors import ContinuityError, UnavailableError
from service.settings import Settings
from spark_job.ledger import generations
from spark_job.recovery import outbox_behind
from spark_job.recovery.outbox_behind import Delivered
from tests.support.recovery.starts import OPEN, begins_at, everything, newest, settings, start
from tests.support.sink.batches import P0, P1, SinkRun


@pytest.mark.guarantee(80)
@pytest.mark.parametrize(
    ("batch_id", "says"),
    [
        (9, "know batch 9, the ledger ends with batch 2"),
        (2, "know another commit of batch 2"),
        (1, "of batch 1 than"),
    ],
)
def test_a_batch_that_was_delivered_and_is_not_in_the_ledger_needs_a_word(
    sink_run: SinkRun, connection: Connection, delivered: list[Delivered], batch_id: int, says: str
) -> None:
    before = everything(connection)
    delivered.append(Delivered(batch_id, uuid4()))
    with pytest.raises(ContinuityError, match="--accept-outbox-behind") as refused:
        start(connection)
    assert says in str(refused.value)
    assert everything(connection) == before
    start(connection, None, "outbox_behind")
    generation = newest(connection)
    assert (generation.reason, generation.revision) == ("outbox_behind", 0)
    assert begins_at(generation) == ({P0: 100, P1: 50}, {P0: OPEN})


def test_a_lost_end_that_was_accepted_stops_no_later_start_and_another_one_does(
    sink_run: SinkRun, connection: Connection, delivered: list[Delivered]
) -> None:
    """The publisher's lanes wait for `publisher resume`: their records stay as they are meanwhile."""
    delivered += [Delivered(9, uuid4(), epoch=2), Delivered(1, uuid4()), Delivered(7, None)]
    start(connection, None, "outbox_behind")
    start(connection)
    # Nor where the flag stayed in the environment, or another finding has opened a generation.
    start(connection, None, "outbox_behind")
    assert newest(connection).number == 2
    changed = settings(session={"timeout_s": 90.0})
    start(connection, None, "changed_assembly", of=changed)
    start(connection, of=changed)
    assert newest(connection).number == 3
    delivered[0] = Delivered(9, uuid4())
    with pytest.raises(ContinuityError, match=r"know batch 9.*--accept-outbox-behind"):
        start(connection, of=changed)


@pytest.mark.guarantee(160)
def test_what_was_delivered_and_is_in_the_ledger_or_pruned_is_no_finding(
    sink_run: SinkRun, connection: Connection, delivered: list[Delivered], database: str
) -> None:
    delivered += [
        Delivered(*row)
        for row in connection.execute("SELECT batch_id, commit_id FROM outbox.batch").fetchall()
    ]
    with psycopg.connect(database, autocommit=True) as owner:
        owner.execute("UPDATE outbox.savepoint SET batch_id = NULL")
        owner.execute("DELETE FROM outbox.batch WHERE batch_id = 1")
    # The last record in the partition of a lane that there is no more: retention has pruned its epoch, and may have pruned its batch.
    delivered.append(Delivered(2, uuid4(), epoch=0))
    start(connection)
    assert newest(connection).number == 1


def test_an_empty_outbox_of_which_something_was_delivered_needs_a_word(
    connection: Connection, delivered: list[Delivered]
) -> None:
    delivered.append(Delivered(3, uuid4()))
    with pytest.raises(ContinuityError, match="--accept-outbox-behind"):
        start(connection)
    assert generations.newest_generation(connection) is None
    start(connection, None, "outbox_behind")
    assert newest(connection).reason == "first"
    start(connection)


@pytest.mark.guarantee(81)
@pytest.mark.parametrize("is_promoted", [True, False])
def test_output_kafka_away_is_waited_for_only_where_the_server_is_another(
    sink_run: SinkRun,
    connection: Connection,
    database: str,
    monkeypatch: pytest.MonkeyPatch,
    is_promoted: bool,
) -> None:
    def away(_settings: Settings, _uuid: UUID) -> list[Delivered]:
        raise UnavailableError("Kafka does not answer")

    monkeypatch.setattr(outbox_behind, "newest_delivered", away)
    if not is_promoted:
        start(connection)
        return
    with psycopg.connect(database, autocommit=True) as owner:
        owner.execute("UPDATE outbox.run SET timeline = timeline - 1")
    before = everything(connection)
    with pytest.raises(UnavailableError, match="was promoted or restored"):
        start(connection)
    assert everything(connection) == before


@pytest.mark.guarantee(81)
@pytest.mark.parametrize(
    ("is_promoted", "cluster", "because"),
    [
        (True, "outputs", None),
        (False, "outputs", "is gone or has no record, and the outbox has deliveries"),
        (True, "input", "the outputs are in another Kafka cluster than the input: outputs"),
    ],
    ids=["on a promoted server", "on the same server", "in the cluster of the outputs"],
)
def test_a_progress_topic_that_is_not_there_cannot_say_what_was_delivered(
    sink_run: SinkRun,
    connection: Connection,
    database: str,
    delivered: list[Delivered],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    is_promoted: bool,
    cluster: str,
    because: str | None,
) -> None:
    """`cluster`: the one that the job reads. Nobody could end its wait for records that are written to another one."""
    monkeypatch.setattr(outbox_behind, "_cluster_id", lambda *_: cluster)
    with psycopg.connect(database, autocommit=True) as owner:
        owner.execute("INSERT INTO outbox.lane (epoch, lane, seq) VALUES (1, 0, 7)")
        owner.execute("UPDATE outbox.identity SET cluster_id = 'outputs'")
        if is_promoted:
            owner.execute("UPDATE outbox.run SET timeline = timeline - 1")
    assert not delivered
    before = everything(connection)
    if because is None:
        with pytest.raises(UnavailableError, match="is gone or has no record, and the outbox has deliveries"):
            start(connection)
        assert everything(connection) == before
    else:
        start(connection)
        assert because in capsys.readouterr().out
