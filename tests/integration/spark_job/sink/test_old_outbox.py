"""What a statement costs does not grow with the age of the outbox: no lock over all partitions of session_output, whatever is done."""

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import psycopg
import pytest

from devstack.databases import PostgresServer
from service.settings import JobSettings, Settings
from spark_job import OutputEvent
from spark_job.dead_letters import store
from spark_job.dead_letters.store import Filter
from spark_job.input.offsets import Offsets
from spark_job.input.topics import InputTopics
from spark_job.ledger import ownership, position, savepoints
from spark_job.recovery import outbox_behind
from spark_job.recovery.findings import AcceptedRisks
from spark_job.recovery.savepoint_restore import greatest_position
from spark_job.recovery.start import Start
from spark_job.sink.backpressure import BacklogReader
from spark_job.status import job_status as status
from spark_job.status.outbox_metrics import JobOutboxMetrics
from tests.support.outbox.letters import events, failed, retry, settings
from tests.support.outbox.old_outputs import make_partitions
from tests.support.sink.batches import P0, P1, TOPIC_ID, SinkRun, letter, session, still_open

ROUNDS = 12
"""After some executions psycopg prepares a statement, and after some more Postgres takes a plan that fits all parameters."""
PARTITIONS = 300
"""Of 10,000 batches each. With one lock a partition, the numbers below differ by as many."""


class CountingConnection(psycopg.Connection[Any]):
    """Notes the most locks that one of its transactions held at its end."""

    most = 0

    @contextmanager
    def transaction(self, *arguments: Any, **options: Any) -> Iterator[Any]:
        with super().transaction(*arguments, **options) as transaction:
            yield transaction
            row = self.execute(
                "SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid()", prepare=False
            ).fetchone()
            assert row is not None
            self.most = max(self.most, row[0])


def locks(dsn: str, patch: pytest.MonkeyPatch, newest_batch: int | None = None) -> dict[str, int]:
    """{what is done: the most locks of its transactions}. `newest_batch`: number of the newest batch before, of a long life."""
    found: dict[str, int] = {}
    with CountingConnection.connect(dsn, autocommit=True, options="-c role=outbox_writer") as connection:

        def count(what: str, act: Callable[[], object], *, is_read: bool = False) -> None:
            connection.most = 0
            # Planning takes locks, too. Else it is now and then that Postgres plans again, by what autovacuum does meanwhile.
            connection.execute("DISCARD PLANS")
            with connection.transaction() if is_read else nullcontext():
                act()
            found[what] = max(connection.most, found.get(what, 0))

        sink_run = SinkRun(connection)
        sink_run.plan(0, (0, 0), (1_000, 50))
        # To be covered by outputs, by letters, and to be retried.
        sink_run.write(
            0,
            *[failed(f"covered-{n}", 30 * n) for n in range(ROUNDS)],
            *[
                letter(f"again-{n}", 30 * n + 5, 30 * n + 9, "timed_out", events("x", ["start_event"]))
                for n in range(ROUNDS)
            ],
            *[failed(f"retried-{n}", 500 + 10 * n) for n in range(ROUNDS)],
            still_open(0, 0),
        )
        savepoints.create(connection, "first")
        if newest_batch:
            with psycopg.connect(dsn, autocommit=True) as owner:
                owner.execute("UPDATE outbox.savepoint SET batch_id = NULL")
                owner.execute("UPDATE outbox.dead_letter SET batch_id = %s", [newest_batch])
                owner.execute("UPDATE outbox.batch SET batch_id = %s", [newest_batch])

        for _ in range(ROUNDS):
            count("retry", lambda: retry(connection, dsn, *ids(connection, "retried", 1)))
            count("list", lambda: store.find(connection, Filter(state="open"), 10), is_read=True)
            count("count", lambda: store.count(connection, Filter(state="open")), is_read=True)
        count("discard", lambda: store.discard(connection, Filter(ids=tuple(ids(connection, "again", 1)))))

        reissue = SinkRun(connection, Offsets({P0: 0, P1: 0}), revision=1, reason="savepoint")
        sink = reissue.new_sink()
        for n in range(ROUNDS):
            reissue.plan(n, (30 * n, 0), (30 * n + 30, 0))
            rows = (
                session(f"covered-{n}", 30 * n, 30 * n + 4, [OutputEvent("t", b"v")]),
                letter(f"again-{n}", 30 * n + 5, 30 * n + 9, "timed_out"),
            )
            count("batch", lambda: reissue.write(n, *rows, sink=sink))  # noqa: B023
        assert not ids(connection, "covered", ROUNDS), "the batches resolve letters, or they prove little"
        assert not ids(connection, "retried", ROUNDS)

        upgraded = SinkRun(connection, Offsets({P0: 400, P1: 0}), reason="upgrade")
        upgraded.plan(0, (400, 0), (500, 0))
        count(
            "first batch after an upgrade", lambda: upgraded.write(0, letter("silent", 390, 399, "timed_out"))
        )
        ownership.give_back(connection, upgraded.run_id)

        job = Settings.model_construct(postgres=settings(dsn).postgres, job=JobSettings())
        patch.setattr(status, "connect", lambda *_given: nullcontext(connection))
        metrics = JobOutboxMetrics(60.0, lambda _ends: [])
        patch.setattr(outbox_behind, "newest_delivered", lambda *_given: [])
        for _ in range(ROUNDS):
            count("status", lambda: status.read(job), is_read=True)
            count("backlog", BacklogReader(connection).read, is_read=True)
            count("metrics", lambda: metrics.poll(connection))
            count("position", lambda: position.read(connection), is_read=True)
            count("greatest position", lambda: greatest_position(connection), is_read=True)
            count("start", lambda: start(connection))
    return found


def ids(connection: psycopg.Connection[Any], key: str, most: int) -> list[int]:
    """Of open letters."""
    found = store.find(connection, Filter(state="open"), 1_000)
    return [row["dead_letter_id"] for row in found if (row["session_key"] or "").startswith(key)][:most]


def start(connection: psycopg.Connection[Any]) -> None:
    """As a job starts, which stops at once."""
    run_id = uuid.uuid4()
    kafka: Any = _Kafka()
    of = Settings.model_validate({"postgres": {"dsn": "postgresql://localhost/unused"}})
    accepted = AcceptedRisks(changed_assembly=True)
    Start(of, run_id, 1, "transform", accepted, False, None).run(connection, kafka, kafka.topics)
    ownership.give_back(connection, run_id)


class _Kafka:
    topics = InputTopics({"input": TOPIC_ID}, {"input": [0, 1]})

    def bounds(self, _topics: InputTopics, where: str) -> Offsets:
        return Offsets(dict.fromkeys((P0, P1), 0 if where == "earliest" else 10_000))


@pytest.fixture
def old_outbox(postgres: PostgresServer, template_database: str) -> Iterator[str]:
    name = f"test_{uuid.uuid4().hex}"
    dsn = postgres.create_database(name, template=template_database)
    with psycopg.connect(dsn, autocommit=True) as owner:
        make_partitions(owner, PARTITIONS * 10_000 - 1)
    yield dsn
    postgres.drop_database(name)


def test_whatever_is_done_takes_as_many_locks_in_an_old_outbox_as_in_a_new_one(
    database: str, old_outbox: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = locks(database, monkeypatch)
    old = locks(old_outbox, monkeypatch, newest_batch=(PARTITIONS - 4) * 10_000 + 1)
    assert old == new
    assert max(old.values()) < 100
