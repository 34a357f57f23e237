"""Each output has its effect once, whatever is sent again and wherever the consumer dies."""

import tracemalloc
from contextlib import closing, suppress
from datetime import timedelta

import pytest

from outbox_consumer.loop import retry
from tests.support.consumer.effects import Database, DyingConnection, Killed, apply, consume_all, member
from tests.support.consumer.group import Broker, Record


def output(name: str, end: int, index: int = 0, revision: int = 0, replay: str | None = None) -> Record:
    """An output of the session that ends at offset `end`."""
    return Record(name.encode(), f"T/0/{end}/{index}", revision, replay)


def test_outputs_of_all_partitions_come_once_and_a_restart_gives_none_of_them(
    broker: Broker, database: Database
) -> None:
    broker.append("orders", 0, output("a", 1), output("b", 2))
    broker.append("orders", 1, output("c", 3), Record(b"foreign"))
    assert sorted(seen.value or b"" for seen in consume_all(broker, database)) == [
        b"a",
        b"b",
        b"c",
        b"foreign",
    ]
    broker.append("orders", 0, output("d", 4))
    assert [seen.value for seen in consume_all(broker, database)] == [b"d"]
    assert sorted(database.effects()) == ["a", "b", "c", "d", "foreign"]


def test_a_replay_and_a_resume_that_goes_back_are_dropped_in_any_partition(
    broker: Broker, database: Database
) -> None:
    broker.append("orders", 0, output("a", 1), output("b", 2))
    broker.append("orders", 0, output("a again", 1), output("b replayed", 2, replay="r"))
    broker.append(
        "orders", 1, output("a replayed", 1, replay="r"), output("c replayed, was lost", 3, replay="r")
    )
    consume_all(broker, database)
    assert database.effects() == ["a", "b", "c replayed, was lost"]


def test_a_reissue_replaces_and_what_has_a_smaller_revision_comes_too_late(
    broker: Broker, database: Database
) -> None:
    broker.append("orders", 0, output("a0", 1), output("a1", 1, revision=1), output("b1", 2, revision=1))
    broker.append(
        "orders", 0, output("a0 replayed", 1, replay="r"), output("b0", 2), output("a1", 1, revision=1)
    )
    seen = consume_all(broker, database)
    assert [(each.value, each.revision, each.replaces) for each in seen] == [
        (b"a0", 0, None),
        (b"a1", 1, 0),
        (b"b1", 1, None),
    ]


def test_the_copy_that_a_handler_sees_says_which_replay_sent_it(broker: Broker, database: Database) -> None:
    broker.append("orders", 0, output("a", 1, replay="75f8c08"), output("b", 2))
    assert [each.replay for each in consume_all(broker, database)] == ["75f8c08", None]


@pytest.mark.parametrize("after", [False, True])
def test_a_kill_at_any_step_repeats_and_loses_nothing(database: Database, after: bool) -> None:
    broker = Broker(orders=2)
    broker.append(
        "orders", 0, output("a", 1), output("b", 2), output("a again", 1), output("b1", 2, revision=1)
    )
    broker.append("orders", 1, output("c", 3), Record(b"d"), output("e", 5))
    deaths = 0
    for step in range(200):
        database.clear()
        with closing(database.connect()) as own:
            connection = DyingConnection(own, step, after=after)
            try:
                for each in member(broker, connection):
                    apply(connection, each)
            except Killed:
                deaths += 1
        broker.members[-1].closed = True
        if not connection.dead:
            break
        consume_all(broker, database)
        effects = database.effects()
        assert sorted(effects) == ["a", "b", "b1", "c", "d", "e"], f"killed at step {step}: {effects}"
        assert [each for each in effects if each in "cde"] == ["c", "d", "e"]
        assert [each for each in effects if each in ("a", "b", "b1")] == ["a", "b", "b1"]
    else:
        pytest.fail("it never came to its end")
    assert deaths > 20


def test_what_the_loop_is_left_in_is_undone_and_comes_again(broker: Broker, database: Database) -> None:
    broker.append("orders", 0, output("a", 1), output("b", 2))
    with closing(database.connect()) as connection:
        for each in member(broker, connection):
            apply(connection, each)
            break
        assert database.effects() == []
        with suppress(ZeroDivisionError):
            for each in member(broker, connection):
                apply(connection, each)
                _ = 1 / 0
    assert database.effects() == []
    assert broker.members[-1].closed
    consume_all(broker, database)
    assert database.effects() == ["a", "b"]


def test_a_block_that_raises_again_and_again_is_set_aside_without_half_an_effect(
    broker: Broker, database: Database
) -> None:
    broker.append("orders", 0, *(output(name, end) for end, name in enumerate("abcde")))
    tries: list[str] = []
    with closing(database.connect()) as connection:
        for each in member(broker, connection, attempts=3):
            with each:
                name = (each.value or b"").decode()
                tries.append(name)
                apply(connection, each)
                if name in "cd":
                    raise RuntimeError("no\0t \ud800 me")
    assert database.effects() == ["a", "b", "e"]
    assert database.letters() == [(name, r"RuntimeError: no\0t \ud800 me") for name in "cd"]
    assert tries.count("c") >= 3
    assert database.positions()["orders", 0] == 5
    with closing(database.connect()) as connection:
        for each in retry(connection, "billing"):
            with each:
                apply(connection, each)
                if each.value == b"d":
                    raise RuntimeError("still not")
    assert database.effects() == ["a", "b", "e", "c"]
    assert [name for name, _ in database.letters()] == ["d"]
    # It is not known as consumed: a replay brings it again, and a retry has nothing to do then.
    broker.append("orders", 1, output("d replayed", 3, replay="r"))
    consume_all(broker, database)
    with closing(database.connect()) as connection:
        assert list(retry(connection, "billing")) == []
    assert database.effects() == ["a", "b", "e", "c", "d replayed"]
    assert database.letters() == []


def test_a_failure_that_passes_sets_nothing_aside(broker: Broker, database: Database) -> None:
    broker.append("orders", 0, output("a", 1), output("b", 2))
    left = 2
    with closing(database.connect()) as connection:
        for each in member(broker, connection, attempts=3):
            with each:
                apply(connection, each)
                if each.value == b"b" and left:
                    left -= 1
                    raise TimeoutError
    assert (database.effects(), database.letters()) == (["a", "b"], [])


def test_a_stop_between_two_attempts_leaves_no_gap(database: Database) -> None:
    broker = Broker(orders=1)
    # After 1, 2 and 4 outputs the next fetch has two runs: the second begins with an id of the first.
    broker.append("orders", 0, *(output(str(n), n) for n in range(7)), marker=False)
    broker.append("orders", 0, output("7", 7), output("7 again", 7), output("8", 8))
    stopped: list[bool] = []
    with closing(database.connect()) as connection:
        for each in member(
            broker, connection, stop=lambda consumer: bool(stopped) or consumer.empty_polls > 0
        ):
            with each:
                apply(connection, each)
                if each.value == b"7":
                    stopped.append(True)
                    raise RuntimeError
    consume_all(broker, database)
    assert database.effects() == [str(n) for n in range(9)]


@pytest.mark.parametrize(
    "headers",
    [
        (("outbox-id", b"T/0/1"),),
        (("outbox-id", b"T/0/x/0"),),
        (("outbox-id", b"\xff"),),
        (("outbox-id", b"T\0/0/1/0"),),
        # Postgres has no room for these, so the next start would meet them again.
        (("outbox-id", b"T/0/1/2147483648"),),
        (("outbox-id", b"T" * 3_000 + b"/0/1/0"),),
        (("outbox-id", b"T/0/1/0"), ("outbox-replay", b"r" * 3_000)),
        (("outbox-id", b"T/0/1/0"), ("outbox-revision", b"-1")),
        (("outbox-id", b"T/0/1/0"), ("outbox-revision", b"99999999999")),
        (("outbox-id", b"T/0/1/0"), ("outbox-replay", b"\n")),
    ],
)
def test_a_record_whose_headers_cannot_be_trusted_is_set_aside(
    broker: Broker, database: Database, headers: tuple[tuple[str, bytes], ...]
) -> None:
    broker.append("orders", 0, Record(b"odd", headers=headers), output("b", 2))
    consume_all(broker, database)
    assert database.effects() == ["b"]
    assert [name for name, _ in database.letters()] == ["odd"]


def test_what_is_forgotten_is_not_guessed(broker: Broker, database: Database) -> None:
    broker.append("orders", 0, output("a", 1), output("b", 2))
    consume_all(broker, database)
    with closing(database.connect()) as connection, connection:
        connection.execute(
            "UPDATE outbox_consumer_seen SET seen_at = '2020-01-01 00:00:00' WHERE end_offset = 1"
        )
    # A retried dead letter of the job is old, too, but no replay: it comes for the first time.
    broker.append("orders", 0, output("a", 1, replay="r"), output("b", 2, replay="r"), output("old", 0))
    consume_all(broker, database, remember=timedelta(days=30))
    assert database.effects() == ["a", "b", "old"]
    assert database.letters() == [
        ("a", "the consumer no longer knows whether it consumed this replayed output")
    ]
    with closing(database.connect()) as connection:
        assert [each.value for each in retry(connection, "billing")] == [b"a"]


def test_what_others_have_made_up_and_is_forgotten_fills_no_memory(
    broker: Broker, database: Database
) -> None:
    broker.append("orders", 0, output("a", 1))
    consume_all(broker, database)
    with closing(database.connect()) as connection, connection:
        rows = (("billing", f"{number:022}/0", 7) for number in range(100_000))
        connection.executemany("INSERT INTO outbox_consumer_forgotten VALUES (?, ?, ?)", rows)
    broker.append("orders", 0, output("b", 2, replay="r"))
    tracemalloc.start()
    try:
        consume_all(broker, database)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert database.effects() == ["a", "b"]
    assert most < 5_000_000


def test_two_consumers_of_a_database_know_nothing_of_each_other(broker: Broker, database: Database) -> None:
    broker.append("orders", 0, output("a", 1))
    consume_all(broker, database)
    with closing(database.connect()) as connection, connection:
        connection.execute("UPDATE outbox_consumer_position SET consumer = 'other'")
        connection.execute("UPDATE outbox_consumer_seen SET consumer = 'other'")
    consume_all(broker, database)
    assert database.effects() == ["a", "a"]
