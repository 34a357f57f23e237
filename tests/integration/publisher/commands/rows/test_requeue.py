"""What was parked is sent again on request, exactly once, or discarded."""

import json
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from typer.testing import CliRunner

from contract.session_keys import lane_hash
from devstack.kafka import KafkaServer
from devstack.topics import create_topics
from publisher.commands.rows.parked import RowError, app
from publisher.outbox.ledger import newest_batch
from publisher.outbox.parked import Choice, Requeued, discard, requeue
from publisher.protocol.records import RowKey
from service.errors import SettingsError
from service.lifecycle.fault_points import Action, Fault, FaultPlan
from service.settings import Settings
from tests.support.outbox.batches import Outbox, Session
from tests.support.outbox.deliveries import drained
from tests.support.processes.commands import run_command
from tests.support.processes.environment import variables_of
from tests.support.processes.publishers import RelayThread
from tests.support.queries import query
from tests.support.servers.topic_limits import set_limit
from tests.support.waiting import wait_until
from tests.support.watching import Watcher

LIMIT = 2_000
TOO_LARGE = b"x" * LIMIT


@pytest.fixture
def topic(kafka: KafkaServer, topic_prefix: str) -> str:
    """An output topic that takes batches of at most LIMIT bytes."""
    name = f"{topic_prefix}small"
    create_topics(kafka.bootstrap_servers, {name: (2, {"max.message.bytes": str(LIMIT)})})
    return name


@pytest.fixture
def publisher_role(outbox: Outbox) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    """A connection with the publisher's rights and no more."""
    with psycopg.connect(outbox.dsn, autocommit=True) as connection:
        connection.execute("SET ROLE outbox_publisher")
        yield connection


def park(outbox: Outbox, keys: list[str]) -> None:
    """Write parked rows of these keys as if lanes had passed them; a key may come more than once."""
    for n, key in enumerate(keys):
        batch_id = outbox.batch({key: [Session([b"%d" % n], 100 + n)]})
        query(
            outbox.dsn,
            "INSERT INTO outbox.lane (epoch, lane) VALUES (1, %s) ON CONFLICT DO NOTHING",
            outbox.lane_of(key),
        )
        query(
            outbox.dsn,
            "INSERT INTO outbox.parked (session_key, batch_id, epoch, lane, lease_token, reason, detail)"
            " VALUES (%s, %s, 1, %s, 1, 'too_large', 'as a test says')",
            key,
            batch_id,
            outbox.lane_of(key),
        )


def parked(dsn: str) -> list[tuple[str, int, str, int | None]]:
    """(session_key, batch_id, state, requeued_batch) of every row that was parked."""
    return query(
        dsn,
        "SELECT session_key, batch_id, state, requeued_batch FROM outbox.parked ORDER BY batch_id, session_key",
    )


def everything(dsn: str) -> Choice:
    """All that is parked now."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        return Choice(newest_batch(connection))


def killed_requeue(settings: Settings, plan: FaultPlan) -> int:
    """Run `publisher parked requeue` as a process of its own that follows a plan; return its exit code."""
    arguments = ("parked", "requeue", "--all", "--yes")
    return run_command("publisher", *arguments, variables=variables_of(settings, plan.file)).returncode


def command(settings: Settings, *words: str) -> Any:
    """Run `publisher parked ...` in this process."""
    return CliRunner().invoke(app, words, env=variables_of(settings))


def assert_each_once(outbox: Outbox, watcher: Watcher) -> None:
    """Fail unless every written event was seen once with its bytes and its outbox-id. Of the order nothing is promised."""
    wait_until(lambda: drained(outbox.dsn), "every lane at the ledger's end")
    watcher.wait_until_all_read()
    seen = Counter((event.key, event.value, event.outbox_id) for event in watcher.seen)
    assert seen == Counter(outbox.written)


@pytest.mark.guarantee(72, 144)
def test_what_was_too_large_is_delivered_once_after_the_limit_was_raised_though_the_requeue_is_killed(
    outbox: Outbox, settings: Settings, watcher: Watcher, kafka: KafkaServer, tmp_path: Path
) -> None:
    outbox.batch(
        {
            "a": [Session([b"1"], 10)],
            "b": [Session([TOO_LARGE, b"2"], 11)],
            "ключ": [Session([TOO_LARGE], 12)],
        }
    )
    outbox.batch({"b": [Session([b"3"], 20), Session([TOO_LARGE], 21)]})
    outbox.batch({"b": [Session([TOO_LARGE], 30)], "c": [Session([b"4"], 31)]})
    with RelayThread(settings):
        wait_until(lambda: drained(outbox.dsn), "everything but what is too large")
        assert [(key, batch) for key, batch, *_ in parked(outbox.dsn)] == [
            ("b", 1),
            ("ключ", 1),
            ("b", 2),
            ("b", 3),
        ]
        set_limit(kafka.bootstrap_servers, outbox.topic, 1_000_000)
        plan = FaultPlan(tmp_path / "faults")
        plan.write(Fault("requeue.after_batch", Action.KILL))
        assert killed_requeue(settings, plan) == -signal.SIGKILL
        outbox.batch({"b": [Session([b"5"], 40)]})
        with psycopg.connect(outbox.dsn, autocommit=True) as connection:
            assert requeue(connection, everything(outbox.dsn)).batches == [6, 7]
        assert_each_once(outbox, watcher)
    # One row of a key in a batch, the older one first; a batch of the job may come between.
    assert parked(outbox.dsn) == [
        ("b", 1, "requeued", 4),
        ("ключ", 1, "requeued", 4),
        ("b", 2, "requeued", 6),
        ("b", 3, "requeued", 7),
    ]
    assert query(outbox.dsn, "SELECT batch_id, kind, sessions, output_events FROM outbox.batch WHERE kind = 'requeue' ORDER BY 1") == [
        (4, "requeue", 2, 3),
        (6, "requeue", 2, 2),
        (7, "requeue", 1, 1),
    ]  # fmt: skip


@pytest.mark.guarantee(72)
def test_what_is_refused_again_is_parked_again_and_requeued_once_only(
    outbox: Outbox, settings: Settings, watcher: Watcher
) -> None:
    outbox.batch({"a": [Session([TOO_LARGE], 10)]})
    with RelayThread(settings), psycopg.connect(outbox.dsn, autocommit=True) as connection:
        wait_until(lambda: drained(outbox.dsn), "the lane beyond the row")
        choice = Choice(newest_batch(connection))
        assert requeue(connection, choice).batches == [2]
        wait_until(lambda: len(parked(outbox.dsn)) == 2, "the row to be parked again")
        assert requeue(connection, choice) == Requeued()
        wait_until(lambda: drained(outbox.dsn), "the lane beyond the row")
    assert parked(outbox.dsn) == [("a", 1, "requeued", 2), ("a", 2, "parked", None)]
    assert watcher.seen == []


@pytest.mark.guarantee(72)
def test_two_requeues_at_once_requeue_every_row_once(outbox: Outbox) -> None:
    park(outbox, [f"k{n % 7}" for n in range(40)])
    choice = everything(outbox.dsn)
    begin = threading.Barrier(2)
    results: list[Requeued] = []

    def run() -> None:
        with psycopg.connect(outbox.dsn, autocommit=True) as connection:
            begin.wait()
            results.append(requeue(connection, choice))

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(result.rows for result in results) == 40
    copies = query(
        outbox.dsn,
        'SELECT o.session_key, o."values", count(*) FROM outbox.session_output o WHERE o.batch_id > 40 GROUP BY 1, 2',
    )
    assert len(copies) == 40
    # Each key's rows keep their order, whoever requeued them.
    assert all(
        found == sorted(found)
        for key in {f"k{n}" for n in range(7)}
        if (found := [int(later or 0) for name, _, _, later in parked(outbox.dsn) if name == key])
    )


@pytest.mark.guarantee(72)
def test_a_requeue_that_meets_a_change_of_the_lanes_uses_the_new_ones(
    outbox: Outbox, publisher_role: psycopg.Connection[tuple[object, ...]]
) -> None:
    keys = [f"key-{n}" for n in range(20)]
    park(outbox, keys)
    choice = everything(outbox.dsn)
    with psycopg.connect(outbox.dsn) as holder:
        holder.execute("SELECT outbox.change_lanes(5)")
        thread = threading.Thread(target=requeue, args=(publisher_role, choice))
        thread.start()
        wait_until(
            lambda: (
                query(
                    outbox.dsn,
                    "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'",
                )
                != []
            ),
            "the requeue to wait for the writer lock",
        )
        holder.commit()
        thread.join()
    assert dict(
        query(outbox.dsn, "SELECT session_key, lane FROM outbox.session_output WHERE batch_id = 21")
    ) == {key: lane_hash(key.encode()) % 5 for key in keys}


@pytest.mark.guarantee(72)
def test_a_row_that_is_being_discarded_is_not_requeued(
    outbox: Outbox, publisher_role: psycopg.Connection[tuple[object, ...]]
) -> None:
    park(outbox, ["a", "b"])
    choice = everything(outbox.dsn)
    results: list[Requeued] = []
    with psycopg.connect(outbox.dsn) as other:
        other.execute("SELECT 1")  # a transaction that the discard is part of, and that stays open
        assert discard(other, Choice(choice.to_batch, rows=[RowKey(1, "a")])) == 1
        thread = threading.Thread(target=lambda: results.append(requeue(publisher_role, choice)))
        thread.start()
        wait_until(
            lambda: (
                query(
                    outbox.dsn,
                    "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'transactionid'",
                )
                != []
            ),
            "the requeue to wait for the discard",
        )
        other.commit()
        thread.join()
    assert results == [Requeued([3], 1)]
    assert parked(outbox.dsn) == [("a", 1, "discarded", None), ("b", 2, "requeued", 3)]


def test_a_lane_that_does_not_exist_is_refused_rather_than_never_delivered(
    outbox: Outbox, publisher_role: psycopg.Connection[tuple[object, ...]]
) -> None:
    park(outbox, ["a"])
    for lanes in ([2], [-1], [None]):
        with pytest.raises(psycopg.errors.InvalidParameterValue, match="a lane that is none of 2"):
            publisher_role.execute(
                "SELECT outbox.requeue(ARRAY['a'], ARRAY[1], %s::integer[], 2, gen_random_uuid())", (lanes,)
            )
    assert parked(outbox.dsn) == [("a", 1, "parked", None)]


def test_the_commands_name_what_they_do_and_what_they_leave_out(outbox: Outbox, settings: Settings) -> None:
    park(outbox, ["a", "b/c", "d"])
    listed = command(settings, "list")
    assert all(row in listed.stdout for row in ("1/a", "2/b/c", "3/d", "as a test says"))
    shown = json.loads(command(settings, "show", "2/b/c", "--json").stdout)
    assert (shown["state"], [output["value"] for output in shown["outputs"]]) == ("parked", ["1"])

    for words, error, message in (
        (("discard", "--all"), SettingsError, "say --yes. Nothing was changed"),
        (("requeue", "1/a", "--all"), RowError, "one of the three"),
        (("requeue", "a"), RowError, "'a' names no row"),
        (("show", "9/z"), RowError, "row 9/z was never parked"),
    ):
        refused = command(settings, *words).exception
        assert isinstance(refused, error)
        assert message in str(refused)
    dry = json.loads(command(settings, "requeue", "--reason", "too_large", "--dry-run", "--json").stdout)
    assert dry == {"would_requeue": 3, "session_keys": 3, "refused": {}}
    assert {state for _, _, state, _ in parked(outbox.dsn)} == {"parked"}

    gone = command(settings, "discard", "2/b/c", "--yes")
    assert (gone.exit_code, gone.stdout) == (0, "discarded: 1\n")
    mixed = command(settings, "requeue", "1/a", "2/b/c", "9/z", "--yes")
    assert mixed.exit_code == 1
    assert mixed.stdout.splitlines() == [
        "requeued: 1, batches: 4",
        "left out 2/b/c: it was discarded",
        "left out 9/z: it was never parked; `publisher parked list --all` shows what was",
    ]
    assert parked(outbox.dsn) == [
        ("a", 1, "requeued", 4),
        ("b/c", 2, "discarded", None),
        ("d", 3, "parked", None),
    ]
