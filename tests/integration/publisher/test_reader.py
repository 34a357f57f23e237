"""A lane reads rows, ledger and lane epochs of one moment, whatever is committed while it reads."""

import psycopg
import pytest

from db.statements import statement
from publisher.checks import Position
from publisher.cursor import ChunkLimits, Cursor
from publisher.reader import Reader
from tests.integration.publisher.outbox_rows import Outbox, Session


def test_an_epoch_that_begins_while_a_lane_reads_is_seen_whole_the_next_time(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """⚠ design §4, lane_epoch: read in the same snapshot as the rows."""
    outbox = Outbox(database, "topic", lanes=1)
    outbox.batch({"a": [Session([b"1"], 1)]})

    def change_the_lanes_before_the_epochs_are_read(package: str, name: str) -> str:
        if name == "epoch_end":
            monkeypatch.setattr("publisher.reader.statement", statement)
            outbox.add_epoch(2, 2, 3)
            outbox.batch({"b": [Session([b"2"], 2)]})
        return statement(package, name)

    monkeypatch.setattr("publisher.reader.statement", change_the_lanes_before_the_epochs_are_read)
    lane = Reader(1, 0, ChunkLimits(100, 1 << 20))
    with psycopg.connect(database, autocommit=True) as connection:
        first = lane.read(connection, Position(0, Cursor(0), None))
        assert ([row.session_key for row in first.rows], first.end, first.epoch_end) == (
            ["a"],
            Cursor(1),
            None,
        )
        second = lane.read(connection, Position(1, first.end, first.commit_id))
        assert (second.rows, second.end, second.epoch_end) == ([], Cursor(1), 1)
        assert second.ends_epoch()
