"""A lane reads rows, ledger and lane epochs of one moment, whatever is committed while it reads."""

import os
from collections.abc import Sequence

import psycopg
import pytest

from contract.cursor import Cursor
from db.statements import queries
from publisher.lane.reader import LaneReader
from publisher.protocol.chunk_limits import ChunkLimits
from publisher.protocol.history_check import DeliveryPosition
from publisher.protocol.records import value_bytes
from tests.support.outbox.batches import Outbox, Session
from tests.support.queries import query
from tests.support.waiting import wait_until

_ROWS = queries("publisher", "rows")

LIMITS = ChunkLimits(100, 1 << 20)
WAITING = "SELECT pid FROM pg_stat_activity WHERE pid = %s AND wait_event_type = 'Lock'"


@pytest.mark.guarantee(48, 59)
def test_an_epoch_that_begins_while_a_lane_reads_is_seen_whole_the_next_time(database: str) -> None:
    """A change of the lane count is read in the same snapshot as the rows."""
    outbox = Outbox(database, "topic", lanes=1)
    outbox.batch({"a": [Session([b"1"], 1)]})
    lane = LaneReader(1, 0)
    with psycopg.connect(database, autocommit=True) as connection:
        with psycopg.connect(database) as changing:
            # The lane has looked at the ledger and stands before the epochs: now the lanes change.
            changing.execute("LOCK TABLE outbox.lane_epoch IN ACCESS EXCLUSIVE MODE")
            asked = lane.ask(connection, DeliveryPosition(0, Cursor(0), None), LIMITS)
            wait_until(lambda: bool(query(database, WAITING, connection.info.backend_pid)), "the lane's wait")
            changing.execute("INSERT INTO outbox.lane_epoch (epoch, from_batch, lanes) VALUES (2, 2, 3)")
        outbox.batch({"b": [Session([b"2"], 2)]})
        first = lane.take(asked)
        assert ([row.session_key for row in first.rows], first.end, first.epoch_end) == (
            ["a"],
            Cursor(1),
            None,
        )
        second = lane.read(connection, DeliveryPosition(1, first.end, first.commit_id), LIMITS)
        assert (second.rows, second.end, second.epoch_end) == ([], Cursor(1), 1)
        assert second.ends_epoch()


def test_a_lane_far_behind_reads_every_batch(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("publisher.lane.reader.LEDGER_WINDOW", 2)
    outbox = Outbox(database, "topic", lanes=1)
    for batch in range(1, 8):
        outbox.batch({f"key-{batch}": [Session([b"1"], batch)]})
    lane = LaneReader(1, 0)
    position, keys = DeliveryPosition(0, Cursor(0), None), []
    with psycopg.connect(database, autocommit=True) as connection:
        while (chunk := lane.read(connection, position, LIMITS)).end != position.cursor:
            keys += [row.session_key for row in chunk.rows]
            assert chunk.more == (chunk.end < Cursor(7))
            position = DeliveryPosition(0, chunk.end, chunk.commit_id)
    assert keys == [f"key-{batch}" for batch in range(1, 8)]


@pytest.mark.guarantee(70)
def test_what_a_lane_reads_at_once_is_bounded_in_bytes_whatever_the_rows_before_were(database: str) -> None:
    outbox = Outbox(database, "topic", lanes=1)
    limits = ChunkLimits(1_000, 1 << 20)
    large = [os.urandom(1 << 19) for _ in range(20)]
    small: dict[str, Sequence[Session]] = {f"a{n:04d}": [Session([b"1"], n + 1)] for n in range(2_000)}
    outbox.batch(small | {f"b{n:04d}": [Session([value], 10_000 + n)] for n, value in enumerate(large)})
    # Stored, it is a hundredth of what it takes.
    outbox.batch({f"c{n:04d}": [Session([b"x" * (1 << 19)], n + 1)] for n in range(20)})
    lane, position, seen, sizes = LaneReader(1, 0), DeliveryPosition(0, Cursor(0), None), 0, []
    with psycopg.connect(database, autocommit=True) as connection:
        while (chunk := lane.read(connection, position, limits)).rows:
            sizes.append(sum(map(value_bytes, chunk.rows)))
            seen += len(chunk.rows)
            position = DeliveryPosition(0, chunk.end, chunk.commit_id)
    assert seen == 2_040
    # The sizes of compressed rows are guesses; once more where nothing told how far rows shrink.
    assert len([size for size in sizes if size > (1 << 20) + (1 << 19)]) <= 1
    assert max(sizes) < 32 * (1 << 19)


def test_a_row_that_shrinks_to_a_hundredth_is_large_by_what_it_takes(database: str) -> None:
    outbox = Outbox(database, "topic", lanes=1)
    outbox.batch({f"k{n}": [Session([b"x" * (8 << 20)], n + 1)] for n in range(3)})
    limits, start = ChunkLimits(100, 1 << 20), DeliveryPosition(0, Cursor(0), None)
    with psycopg.connect(database, autocommit=True) as connection:
        held = LaneReader(1, 0).read(connection, start, limits, 1 << 20)
        assert (held.is_large, held.rows, held.end, held.is_last) == (True, [], Cursor(0), False)
        alone = LaneReader(1, 0).read(connection, start, limits)
        assert ([row.session_key for row in alone.rows], alone.more) == (["k0"], True)


def test_a_chunk_of_a_backlog_costs_a_chunk_and_not_the_backlog(database: str) -> None:
    """The planner takes what a lane has left for a handful of rows, and would sort all of it for each chunk."""
    outbox = Outbox(database, "topic", lanes=1)
    outbox.batch({f"k{n:04d}": [Session([b"x" * 500], n + 1)] for n in range(3_000)})
    bounds = {"epoch": 1, "lane": 0, "from_batch": 1, "from_key": "", "to_batch": 1_001, "rows": 100}
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("ANALYZE outbox.session_output")
        with connection.transaction():
            connection.execute(_ROWS["in_index_order"])
            plan = connection.execute(
                "EXPLAIN " + _ROWS["of_lane"],
                bounds | {"bytes": 1 << 20, "whole": 1 << 20, "expansion": 4},
            ).fetchall()
    assert not [line for (line,) in plan if "Sort" in line]


def test_a_row_that_takes_more_than_allowed_stays_in_postgres_and_nothing_is_passed(database: str) -> None:
    outbox = Outbox(database, "topic", lanes=1)
    small, large = os.urandom(1 << 10), os.urandom(1 << 20)
    outbox.batch({"a": [Session([small], 1)], "b": [Session([large], 2)], "c": [Session([small], 3)]})
    lane, limits = LaneReader(1, 0), ChunkLimits(100, 1 << 16)
    with psycopg.connect(database, autocommit=True) as connection:
        first = lane.read(connection, DeliveryPosition(0, Cursor(0), None), limits, 1 << 16)
        assert ([row.session_key for row in first.rows], first.more) == (["a"], True)
        position = DeliveryPosition(0, first.end, first.commit_id)
        held = lane.read(connection, position, limits, 1 << 16)
        assert (held.is_large, held.rows, held.end, held.is_last) == (True, [], first.end, False)
        alone = lane.read(connection, position, limits)
        assert ([row.session_key for row in alone.rows], alone.more) == (["b"], True)
        last = lane.read(connection, DeliveryPosition(0, alone.end, alone.commit_id), limits, 1 << 16)
        assert [row.session_key for row in last.rows] == ["c"]
