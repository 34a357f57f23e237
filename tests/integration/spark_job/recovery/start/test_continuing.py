"""A start continues by itself where nothing can be lost or repeated."""

from collections.abc import Mapping

import psycopg
import pytest

from db.connection import Connection
from service.errors import BatchTooLargeError, ContinuityError, UnavailableError
from spark_job.input.offsets import Offsets, TopicPartition
from spark_job.ledger import ownership, runs
from spark_job.ledger.assembly_rules import stored_rules
from spark_job.ledger.open_partitions import OpenPartition, OpenPartitions
from tests.support.recovery.starts import (
    ADDED,
    MOST,
    OPEN,
    Input,
    begins_at,
    leave,
    newest,
    run_row,
    settings,
    start,
)
from tests.support.sink.batches import P0, P1, TOPIC_ID, SinkRun, letter, still_open


@pytest.mark.parametrize(
    ("starting", "begins"), [("earliest", {P0: 7, P1: 0}), ("latest", {P0: 490, P1: 500})]
)
def test_the_first_start_stores_where_it_begins_as_numbers(
    connection: Connection, starting: str, begins: Mapping[TopicPartition, int]
) -> None:
    """`latest` is what a read_committed reader sees as the end: a transaction that is open now will be read."""
    of = settings(source={"topics": ["input"], "starting_offsets": starting})
    started = start(connection, Input(earliest={P0: 7, P1: 0}), of=of)
    generation = newest(connection)
    assert (generation.number, generation.reason, generation.revision) == (1, "first", 0)
    assert begins_at(generation) == (begins, {})
    assert generation.topics == {TOPIC_ID: "input"}
    assert generation.assembly == stored_rules(of)
    row = run_row(connection)
    assert (row["restored"], row["generation"], row["max_events"]) == ("fresh", 1, MOST)
    assert Offsets.from_json(row["resumes_at"]) == begins == started.begun.resumes_at
    # The next one reads on there, whatever the setting says.
    start(connection, Input(earliest={P0: 7, P1: 0}, readable={P0: 600, P1: 600}), of=of)
    assert (run_row(connection)["restored"], newest(connection).number) == ("position", 1)
    assert Offsets.from_json(run_row(connection)["resumes_at"]) == begins


def test_a_start_continues_where_the_ledger_ends_with_what_is_open_there(
    sink_run: SinkRun, connection: Connection
) -> None:
    started = start(connection)
    row = run_row(connection)
    assert (row["restored"], row["generation"], row["rebuild_offsets"]) == ("position", 1, 100 - 40)
    assert row["explanation"] == "continues at the ledger's position, batch 2 of generation 1"
    assert started.begun.resumes_at == {P0: 100, P1: 50}
    assert started.position.open == {P0: OPEN}
    assert newest(connection).number == 1


@pytest.mark.guarantee(18)
def test_a_partition_that_was_added_begins_at_its_earliest_record(
    sink_run: SinkRun, connection: Connection
) -> None:
    kafka = Input(earliest={P0: 0, P1: 0, ADDED: 3}, latest={P0: 500, P1: 500, ADDED: 9})
    assert start(connection, kafka).begun.resumes_at == {P0: 100, P1: 50, ADDED: 3}
    assert newest(connection).number == 1


@pytest.mark.guarantee(118)
@pytest.mark.parametrize(
    ("because", "before", "attempt", "takes"),
    [
        (runs.because(BatchTooLargeError("x"), MOST), MOST, 2, MOST // 4),
        (runs.because(BatchTooLargeError("x"), MOST), MOST, 1, MOST // 4),  # by a strategy that gives up
        (runs.because(BatchTooLargeError("x"), 800), 200, 2, 200),  # it had grown meanwhile
        (runs.because(UnavailableError("gone"), None), MOST, 2, MOST),
        (runs.because(UnavailableError("gone"), None), 200, 2, 200),
        (
            runs.because(UnavailableError("gone"), None),
            200,
            1,
            MOST,
        ),  # a process of its own: a person was there
        (None, 200, 1, 50),  # killed
        (runs.STOPPED, 200, 1, MOST),
    ],
)
def test_a_run_whose_batches_were_too_large_makes_the_next_one_take_fewer_events(
    sink_run: SinkRun,
    connection: Connection,
    database: str,
    because: str | None,
    before: int,
    attempt: int,
    takes: int,
) -> None:
    start(connection)
    with psycopg.connect(database, autocommit=True) as owner:
        owner.execute(
            "UPDATE outbox.run SET ended_because = %s, ended_at = CASE WHEN %s::text IS NOT NULL THEN now() END, max_events = %s"
            " WHERE number = (SELECT max(number) FROM outbox.run)",
            [because, because, before],
        )
    assert start(connection, attempt=attempt).begun.max_events == takes
    assert run_row(connection)["max_events"] == takes


@pytest.mark.guarantee(118)
def test_a_killed_run_that_had_committed_leaves_the_next_one_its_full_batches(
    sink_run: SinkRun, connection: Connection
) -> None:
    """The run of the fixture has written two batches."""
    assert start(connection).begun.max_events == MOST


@pytest.mark.guarantee(18)
def test_a_topic_that_was_added_to_the_settings_opens_a_generation_by_itself(
    sink_run: SinkRun, connection: Connection
) -> None:
    added = TopicPartition("another", 0)
    kafka = Input(
        ids={"input": TOPIC_ID, "more": "another"},
        earliest={P0: 0, P1: 0, added: 5},
        latest={P0: 500, P1: 500, added: 50},
    )
    start(connection, kafka)
    generation = newest(connection)
    assert (generation.reason, generation.revision, generation.from_batch) == ("new_topic", 0, 2)
    assert generation.start == {P0: 100, P1: 50, added: 5}
    assert generation.open == {P0: OPEN}
    # Taken off the list again, and put back: it continues where it was.
    start(connection)
    assert newest(connection).start.at(added) == 5
    kafka.earliest = {P0: 0, P1: 0, added: 0}
    assert start(connection, kafka).begun.resumes_at.at(added) == 5


@pytest.mark.guarantee(83)
@pytest.mark.parametrize("time", ["timestamp", "$.at"])
def test_the_first_start_by_rules_3_opens_a_generation_where_the_time_is_a_field(
    connection: Connection, time: str
) -> None:
    """Without a flag, once, and with what was open; other settings continue as they were."""
    of, opened = settings(session={"time": time}), OpenPartitions({P0: OPEN})
    before = stored_rules(of) | {"rules": 2}
    leave(SinkRun(connection, Offsets({P0: 100, P1: 50}), opened=opened, assembly=before))
    is_new = time != "timestamp"
    for _ in range(2):
        started = start(connection, of=of)
        generation = newest(connection)
        assert (generation.number, generation.assembly["rules"]) == ((2, 3) if is_new else (1, 2))
        assert [each.assembly for each in generation.lineage.former] == [before] * is_new
        assert started.begun.resumes_at == {P0: 100, P1: 50}
        assert started.position.open == opened


@pytest.mark.guarantee(94)
def test_an_upgraded_outbox_continues_with_whatever_is_found_open(connection: Connection) -> None:
    """Its generation names safe offsets and no digests; what silence closes on the way may have no letter yet."""
    opened = OpenPartitions({P0: OpenPartition(40, 0, 0, 0, None)})
    upgraded = SinkRun(
        connection,
        Offsets({P0: 100, P1: 50}),
        reason="upgrade",
        opened=opened,
        assembly=stored_rules(settings()),
    )
    leave(upgraded)
    started = start(connection)
    row = run_row(connection)
    assert (row["restored"], row["rebuild_offsets"]) == ("position", 60)
    assert "the start of generation 1 (upgrade)" in row["explanation"]
    assert started.begun.resumes_at == {P0: 100, P1: 50}
    assert started.position.open == opened
    with pytest.raises(ContinuityError, match=r"offsets 40 to 44 .*--accept-data-loss"):
        start(connection, Input(earliest={P0: 45, P1: 0}))
    # Its first batch tells what is open.
    upgraded.plan(0, (100, 50), (120, 50))
    with connection.transaction():
        ownership.take_over(connection, upgraded.run_id, settings().job, force=False)
    upgraded.write(0, letter("k", 41, 99, "timed_out"), still_open(0, 80))
    leave(upgraded)
    assert start(connection).position.open == {P0: OpenPartition(80, 1, 2, 10, "3-digest of [80]")}
