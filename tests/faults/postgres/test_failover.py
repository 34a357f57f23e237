"""A primary dies and its replica takes over: with a synchronous replica nothing happens to the data, with an asynchronous one the loss is
found, named and mended; both services find the new primary by a DSN with both hosts."""

from pathlib import Path

import psycopg
import pytest

from db.migrate import HEAD, current, upgrade
from devstack.kafka import KafkaServer
from devstack.postgres import Postgres
from service.errors import UnavailableError
from tests.support.faults.outages import TIMEOUT_S, end_of, go_on
from tests.support.faults.outbox_batches import Batches, connected
from tests.support.pipeline import verdict
from tests.support.pipeline.pipeline import Pipeline
from tests.support.proxies.postgres import Cut, PostgresProxy, When
from tests.support.queries import query
from tests.support.servers.replica import Replica, failover_dsn

DATABASE = "outbox"


class Pair:
    """A primary with an empty outbox, its replica, and the DSN of both."""

    def __init__(self, folder: Path, *, synchronous: bool) -> None:
        self.primary = Postgres(folder / "primary", fast=True)
        self.replica = Replica(folder / "replica", self.primary, synchronous=synchronous, fast=True)
        self.dsn = ""

    def __enter__(self) -> "Pair":
        self.primary.start()
        self.primary.create_database(DATABASE)
        self.replica.start()
        self.dsn = failover_dsn([self.primary, self.replica], DATABASE)
        upgrade(self.dsn)
        return self

    def __exit__(self, *_: object) -> None:
        self.replica.destroy()
        self.primary.destroy()

    def fail_over(self) -> None:
        """The primary's machine dies, and the replica is promoted."""
        self.primary.kill()
        self.replica.promote()


@pytest.mark.guarantee(38, 160)
@pytest.mark.parametrize("synchronous", [True, False])
def test_a_confirmed_commit_survives_on_a_synchronous_replica_and_may_be_missing_on_an_asynchronous_one(
    tmp_path: Path, synchronous: bool
) -> None:
    with Pair(tmp_path, synchronous=synchronous) as pair:
        batches = Batches(pair.dsn)
        with PostgresProxy(pair.primary.dsn(DATABASE)) as proxy:
            with connected(proxy.dsn) as connection:
                proxy.cut_at(None)
                batches.write(connection)
                commit = proxy.requests - 1
            batches.written += 1
            pair.replica.wait_for_replay()
            if not synchronous:
                pair.replica.detach()
            with connected(proxy.dsn) as connection:
                # The commit is confirmed; the job never hears of it.
                proxy.cut_at(Cut(commit, When.AFTER, act=pair.fail_over))
                with pytest.raises(psycopg.OperationalError):
                    batches.write(connection)
        assert batches.stored() == (2 if synchronous else 1)
        was_there = batches.go_on() is None
        assert was_there == synchronous


@pytest.mark.guarantee(120)
def test_a_standby_is_named_as_such_and_a_dsn_with_both_hosts_leads_to_the_primary(tmp_path: Path) -> None:
    with Pair(tmp_path, synchronous=True) as pair:
        batches = Batches(pair.dsn)
        pair.replica.wait_for_replay()
        with connected(pair.replica.dsn(DATABASE)) as standby:
            error = batches.fail(standby)
        assert isinstance(error, UnavailableError)
        assert "target_session_attrs=read-write" in str(error)
        both = failover_dsn([pair.replica, pair.primary], DATABASE)
        with connected(both) as connection:
            assert connection.info.port == pair.primary.port
        pair.primary.kill()
        with pytest.raises(
            UnavailableError, match=f":{pair.replica.port},127.0.0.1:{pair.primary.port}/{DATABASE}"
        ):
            connected(both)
        pair.replica.promote()
        assert current(both) == HEAD
        assert batches.go_on() is not None


@pytest.mark.guarantee(38)
@pytest.mark.faults
@pytest.mark.timeout(2_400)
def test_a_synchronous_replica_takes_over_and_nothing_is_lost_or_repeated(
    kafka: KafkaServer, topic_prefix: str, tmp_path: Path
) -> None:
    with (
        Pair(tmp_path, synchronous=True) as pair,
        Pipeline(pair.dsn, kafka.bootstrap_servers, topic_prefix, tmp_path) as pipeline,
    ):
        pipeline.job.start()
        pipeline.publisher.start()
        with pipeline.load(21, sessions_per_second=10):
            pipeline.wait_until(
                lambda: pipeline.batches() >= 3, "batches", timeout_s=TIMEOUT_S, alive=(pipeline.job,)
            )
            pipeline.wait_until(lambda: pipeline.watcher.seen, "deliveries", alive=(pipeline.publisher,))
            pair.fail_over()
            pipeline.connect()
            # Everything that the primary had confirmed.
            batches = pipeline.batches()
            go_on(pipeline, lambda: pipeline.batches() >= batches + 3, "batches on the new primary")
        expected = pipeline.expectation()
        pipeline.complete(expected)
        pipeline.stop()
        pipeline.assert_exactly_once(expected)
        assert pipeline.generations() == [(1, "first", 0)]
        assert "job_restarting" in pipeline.job.log()
        assert "continues at the ledger's position" in pipeline.job.log()
        assert pipeline.publisher.log().count("postgres_promoted") == 1


@pytest.mark.guarantee(80, 159)
@pytest.mark.faults
@pytest.mark.timeout(2_400)
def test_the_tail_that_an_asynchronous_replica_lost_is_found_by_both_services_and_written_again_once_accepted(
    kafka: KafkaServer, topic_prefix: str, tmp_path: Path
) -> None:
    with (
        Pair(tmp_path, synchronous=False) as pair,
        Pipeline(pair.dsn, kafka.bootstrap_servers, topic_prefix, tmp_path) as pipeline,
    ):
        job, publisher = pipeline.job, pipeline.publisher
        job.start()
        publisher.start()
        pipeline.feed(22, sessions=100)
        pipeline.complete(pipeline.expectation())
        pair.replica.wait_for_replay()
        pair.replica.detach()
        kept = pipeline.batches()
        pipeline.feed(23, sessions=200)
        pipeline.complete(pipeline.expectation())
        lost_batches = pipeline.batches() - kept
        lost = {
            row[0] for row in pipeline.ask("SELECT outbox_id FROM outbox.event WHERE batch_id > %s", kept)
        }
        assert lost

        pair.fail_over()
        pipeline.connect()
        assert pipeline.batches() == kept
        # An idle job would not notice before its next batch.
        pipeline.feed(24, sessions=100)
        assert end_of(pipeline) == 5, job.tail()
        assert "--accept-outbox-behind" in job.log()
        assert f"outputs of at most {lost_batches} batches go out again" in job.log()
        assert publisher.wait(TIMEOUT_S) == 5, publisher.tail()
        assert "database_restored" in publisher.log()
        assert pipeline.batches() == kept

        job.start("--accept-outbox-behind")
        expected = pipeline.expectation()
        pipeline.wait_for_input(expected)
        assert job.terminate() == 0, job.tail()
        verdict.assert_outbox(pair.dsn, expected)
        verdict.assert_ledger_agrees(pair.dsn)
        assert [reason for _, reason, _ in pipeline.generations()] == ["first", "outbox_behind"]
        # What went out before and was lost is there again under the same ids and byte for byte the same; consumers can drop it by id.
        seen = {event.outbox_id: (event.topic, event.key, event.value) for event in pipeline.watcher.seen}
        stored = {
            outbox_id: (topic, key, value)
            for outbox_id, topic, key, value in query(
                pair.dsn, "SELECT outbox_id, topic, key, value FROM outbox.event WHERE batch_id > %s", kept
            )
        }
        assert stored.keys() & seen.keys() == lost
        assert {each: stored[each] for each in lost} == {each: seen[each] for each in lost}
        # The publisher does not continue by itself: the ledger's new batches have the numbers of lost ones.
        publisher.start()
        assert publisher.wait(TIMEOUT_S) == 5, publisher.tail()
