"""A standby, or a server that is read-only, at the start of anything: the publisher waits, and every command says what is wrong."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pydantic import SecretStr

from db.cli import app as db_app
from db.connection import connect
from db.migrate import upgrade
from devstack.kafka import KafkaServer
from devstack.postgres import Postgres
from publisher.cli import app as publisher_app
from service.commands.main import run_command
from service.settings import PostgresSettings
from spark_job import OutputEvent
from spark_job.cli import app as spark_job_app
from spark_job.ledger import ownership
from spark_job.ledger import savepoints as store
from tests.support.outbox.deliveries import deliver, drained
from tests.support.outbox.letters import failed
from tests.support.processes.environment import variables_of
from tests.support.processes.publishers import publisher_service, settings_for
from tests.support.queries import query
from tests.support.servers.replica import Replica
from tests.support.sink.batches import SinkRun, session
from tests.support.waiting import wait_until
from tests.support.watching import Watcher

Lines = dict[Callable[[list[str]], object], list[str]]

READS: Lines = {
    publisher_app: [
        "status", "audit", "audit --kafka", "find a", "lanes", "parked list", "parked show 1/a", "retention plan", "replay list",
    ],
    spark_job_app: ["status", "savepoint list", "savepoint export s --output {exported}", "dead-letters list", "dead-letters show 1"],
    db_app: ["status", "up"],
}  # fmt: skip
CHANGES: Lines = {
    publisher_app: [
        "lanes set 5 --yes", "parked requeue --all --yes", "parked discard --all --yes",
        "retention run --yes", "replay start --from-batch 1 --yes", "erase a --yes --wait 0",
    ],
    spark_job_app: [
        "stop --savepoint t", "savepoint create t", "savepoint delete s", "dead-letters retry --all --yes",
        "dead-letters discard --all --yes",
    ],
    db_app: ["down 0007 --yes"],
}  # fmt: skip
OTHERS: Lines = {
    publisher_app: [
        "locate nowhere/0/1/0",
        "parked park --topic none --yes",
        "replay go-on 1",
        "replay cancel 1",
    ],
    spark_job_app: ["savepoint restore s", "fork {exported}"],
    db_app: ["check"],
}
"""What ends before it would change anything, for reasons of its own."""


@pytest.fixture
def primary(own_postgres: Postgres, topic: str) -> Postgres:
    """With a batch of two rows, a letter and a savepoint; neither service runs."""
    upgrade(own_postgres.dsn())
    with connect(
        PostgresSettings(dsn=SecretStr(own_postgres.dsn())), "a test", autocommit=True
    ) as connection:
        run = SinkRun(connection)
        run.plan(0, (0, 0), (100, 0))
        rows = [session(key, n, n + 9, [OutputEvent(topic, b"x")]) for n, key in enumerate(("a", "b"))]
        run.write(0, *rows, failed("c", 60))
        with connection.transaction():
            store.create(connection, "s")
        ownership.give_back(connection, run.run_id)
    return own_postgres


@pytest.fixture
def standby(primary: Postgres, tmp_path: Path) -> Iterator[Replica]:
    """A hot standby of the primary, which has all of that."""
    replica = Replica(tmp_path / "standby", primary, fast=True)
    try:
        replica.start()
        replica.wait_for_replay()
        yield replica
    finally:
        replica.destroy()


def test_every_command_on_a_standby_works_or_says_that_it_is_one(
    primary: Postgres,
    standby: Replica,
    kafka: KafkaServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    deliver(settings_for(primary.dsn(), kafka.bootstrap_servers))
    query(
        primary.dsn(),
        "INSERT INTO outbox.parked (session_key, batch_id, epoch, lane, lease_token, reason, detail)"
        " SELECT session_key, batch_id, 1, lane, 1, 'too_large', 'as a test says' FROM outbox.session_output WHERE session_key = 'a'",
    )
    standby.wait_for_replay()
    for name, value in variables_of(settings_for(standby.dsn(), kafka.bootstrap_servers)).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("OUTBOX_RETENTION__KEEP_S", "60")
    monkeypatch.setenv("OUTBOX_TRANSFORM__FUNCTION", "tests.support.outbox.letters:good")
    exported = tmp_path / "s.json"
    wrong: list[str] = []
    for lines, codes, must_say in (
        (READS, {0, 1}, ""),
        (CHANGES, {3, 6}, "read-only"),
        (OTHERS, range(17), ""),
    ):
        for app, commands in lines.items():
            for line in commands:
                with pytest.raises(SystemExit) as ended:
                    run_command(lambda: app(line.format(exported=exported).split()), "it")  # noqa: B023 - called at once
                said = "".join(capsys.readouterr())
                if ended.value.code not in codes or must_say not in said:
                    wrong.append(f"{line}: {ended.value.code} {said}")
    assert not wrong, "\n".join(wrong)


def test_a_publisher_that_starts_on_a_standby_delivers_once_it_is_promoted(
    primary: Postgres, standby: Replica, kafka: KafkaServer, watcher: Watcher, tmp_path: Path
) -> None:
    settings = settings_for(standby.dsn(), kafka.bootstrap_servers)
    with publisher_service(settings, tmp_path / "publisher.log") as process:
        wait_until(lambda: "retrying" in process.log(), process.log)
        assert process.is_alive()
        primary.kill()
        standby.promote()
        wait_until(lambda: drained(standby.dsn()), process.log)
        assert process.terminate() == 0
    assert "Traceback" not in process.log()
    watcher.wait_until_all_read()
    assert len(watcher.seen) == 2


@pytest.mark.guarantee(120)
@pytest.mark.parametrize("options", ["", "?target_session_attrs=read-write"], ids=["plain", "read-write"])
def test_a_publisher_that_starts_on_a_read_only_server_delivers_once_it_is_not(
    primary: Postgres, kafka: KafkaServer, watcher: Watcher, tmp_path: Path, options: str
) -> None:
    """An administrator's word for the whole server. A role's own has no effect (test_odd_login.py)."""
    primary.configure("default_transaction_read_only", "on")
    settings = settings_for(primary.dsn() + options, kafka.bootstrap_servers)
    with publisher_service(settings, tmp_path / "publisher.log") as process:
        wait_until(lambda: "retrying" in process.log(), process.log)
        assert process.is_alive()
        primary.configure("default_transaction_read_only", "off")
        wait_until(lambda: drained(primary.dsn()), process.log)
        assert process.terminate() == 0
    assert "Traceback" not in process.log()
    watcher.wait_until_all_read()
    assert len(watcher.seen) == 2
