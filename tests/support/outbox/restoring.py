"""Dumps and restores of an outbox, damages to Kafka, and `publisher resume` as a test gives it."""

import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from typer.testing import CliRunner

from devstack.databases import PostgresServer
from devstack.topics import create_topics
from publisher.cli import app
from service.errors import OutboxError, UnavailableError
from service.lifecycle.fault_points import Action, Fault, FaultPlan, arm
from service.settings import Settings
from tests.support.json_documents import json_document
from tests.support.outbox.batches import Outbox
from tests.support.outbox.deliveries import reasons, status_of
from tests.support.processes.publishers import RelayThread
from tests.support.queries import query
from tests.support.waiting import wait_until
from tests.support.watching import Watcher

Written = list[tuple[bytes, bytes | None, str]]


class Dump:
    """An outbox as it was when this was made. No publisher may run then; restoring ends every connection."""

    def __init__(self, postgres: PostgresServer, dsn: str) -> None:
        self._postgres = postgres
        self._name = dsn.rsplit("/", 1)[1]
        self._copy = f"test_dump_{uuid.uuid4().hex}"
        _no_connections(postgres, self._name)
        postgres.create_database(self._copy, template=self._name)

    def restore(self) -> None:
        """Put it back under the name of before."""
        self._postgres.drop_database(self._name)
        self._postgres.create_database(self._name, template=self._copy)

    def drop(self) -> None:
        """Throw it away."""
        self._postgres.drop_database(self._copy)


def _no_connections(postgres: PostgresServer, name: str) -> None:
    sql = "SELECT count(*) FROM pg_stat_activity WHERE datname = %s AND backend_type = 'client backend'"
    wait_until(lambda: query(postgres.dsn(), sql, name) == [(0,)], f"the end of the connections to {name}")


def stops_with(outbox: Outbox, settings: Settings, *words: str) -> None:
    """Run, and expect that every lane stops, says all these words, and nothing is delivered."""
    before = query(outbox.dsn, "SELECT count(*) FROM outbox.delivery")
    with RelayThread(settings) as relay:
        wait_for_stop(outbox, relay, *words)
    assert query(outbox.dsn, "SELECT count(*) FROM outbox.delivery") == before


def wait_for_stop(outbox: Outbox, relay: RelayThread, *words: str) -> None:
    """Return once the process has ended or every lane shows the first word; fail unless all words are said."""

    def stopped() -> bool:
        shown = reasons(outbox.dsn)
        return relay.ended() or (bool(shown) and all(words[0] in reason for reason in shown))

    wait_until(stopped, lambda: f"the stop for {words}: {reasons(outbox.dsn)}")
    text = str(relay.error) if relay.ended() else "\n".join(reasons(outbox.dsn))
    if relay.ended():
        assert getattr(relay.error, "exit_code", None) == 5, repr(relay.error)
    for word in words:
        assert word in text, f"{word!r} is not in: {text}"


def resume(settings: Settings, *arguments: str, fault_file: Path | None = None) -> dict[str, Any]:
    """Give `publisher resume`; return what it says as JSON. Raises the OutboxError that ended it."""
    environment = {
        "OUTBOX_POSTGRES__DSN": settings.postgres.dsn.get_secret_value(),
        "OUTBOX_KAFKA__BOOTSTRAP_SERVERS": settings.kafka.bootstrap_servers,
    }
    if fault_file is not None:
        environment["OUTBOX_TESTING__FAULT_FILE"] = str(fault_file)
    result = CliRunner(env=environment).invoke(app, ["resume", "--json", *arguments])
    if isinstance(result.exception, OutboxError):
        raise result.exception
    assert result.exception is None, result.output
    # A relay of this process may log before it.
    found: dict[str, Any] = json_document(result.stdout)
    return found


def resume_fails_at(point: str, settings: Settings, folder: Path, *arguments: str) -> None:
    """Give `publisher resume` and let it fail at a fault point. `folder`: for the plan."""
    plan = FaultPlan(folder / "faults")
    plan.write(Fault(point, Action.RAISE))
    try:
        with pytest.raises(UnavailableError):
            resume(settings, *arguments, fault_file=plan.file)
    finally:
        arm(None)


def total(report: dict[str, Any], what: str) -> int:
    """Events of all lanes together: `again`, `skipped`, `trusted` or `unknown`."""
    return sum(int(lane[what]["events"]) for lane in report["lanes"])


def assert_seen(watcher: Watcher, expected: Written) -> None:
    """Fail unless exactly these events, repeats counted, are in the topic."""
    wait_until(
        lambda: len(watcher.seen) >= len(expected),
        lambda: f"{len(expected)} events, saw {len(watcher.seen)}",
    )
    watcher.wait_until_all_read()
    assert Counter((event.key, event.value, event.outbox_id) for event in watcher.seen) == Counter(expected)


def progress_topic(dsn: str) -> str:
    """The progress topic's full name."""
    return f"outbox-progress-{status_of(dsn).identity.outbox_uuid}"


def delete_topic(bootstrap: str, name: str) -> None:
    """Delete a topic and wait until it is gone."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    deleted = admin.delete_topics([name])
    deleted[name].result()
    wait_until(lambda: admin.list_topics(name, timeout=30).topics[name].error is not None, f"{name} gone")


def recreate_topic(bootstrap: str, name: str, partitions: int = 3) -> None:
    """Delete a topic and make it again, empty."""
    delete_topic(bootstrap, name)
    create_topics(bootstrap, {name: (partitions, {})})
