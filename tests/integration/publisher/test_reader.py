"""A lane reads rows, ledger and lane epochs of one moment, whatever is committed while it reads."""

import psycopg
import pytest

from publisher.delivery.history import Position
from publisher.lane.reader import Reader
from publisher.outbox.cursor import ChunkLimits, Cursor
from tests.integration.publisher.harness import query, wait_until
from tests.integration.publisher.outbox_rows import Outbox, Session

LIMITS = ChunkLimits(100, 1 << 20)
WAITING = "SELECT pid FROM pg_stat_activity WHERE pid = %s AND wait_event_type = 'Lock'"


def test_an_epoch_that_begins_while_a_lane_reads_is_seen_whole_the_next_time(database: str) -> None:
    """A change of the lane count is read in the same snapshot as the rows."""
    outbox = Outbox(database, "topic", lanes=1)
    outbox.batch({"a": [Session([b"1"], 1)]})
    lane = Reader(1, 0)
    with psycopg.connect(database, autocommit=True) as connection:
        with psycopg.connect(database) as changing:
            # The lane has looked at the ledger and stands before the epochs: now the lanes change.
            changing.execute("LOCK TABLE outbox.lane_epoch IN ACCESS EXCLUSIVE MODE")
            asked = lane.ask(connection, Position(0, Cursor(0), None), LIMITS)
            wait_until(lambda: bool(query(database, WAITING, connection.info.backend_pid)), "the lane's wait")
            changing.execute("INSERT INTO outbox.lane_epoch (epoch, from_batch, lanes) VALUES (2, 2, 3)")
        outbox.batch({"b": [Session([b"2"], 2)]})
        first = lane.take(asked)
        assert ([row.session_key for row in first.rows], first.end, first.epoch_end) == (
            ["a"],
            Cursor(1),
            None,
        )
        second = lane.read(connection, Position(1, first.end, first.commit_id), LIMITS)
        assert (second.rows, second.end, second.epoch_end) == ([], Cursor(1), 1)
        assert second.ends_epoch()


def test_a_lane_far_behind_reads_every_batch(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("publisher.lane.reader._LEDGER_WINDOW", 2)
    outbox = Outbox(database, "topic", lanes=1)
    for batch in range(1, 8):
        outbox.batch({f"key-{batch}": [Session([b"1"], batch)]})
    lane = Reader(1, 0)
    position, keys = Position(0, Cursor(0), None), []
    with psycopg.connect(database, autocommit=True) as connection:
        while (chunk := lane.read(connection, position, LIMITS)).end != position.cursor:
            keys += [row.session_key for row in chunk.rows]
            assert chunk.more == (chunk.end < Cursor(7))
            position = Position(0, chunk.end, chunk.commit_id)
    assert keys == [f"key-{batch}" for batch in range(1, 8)]
