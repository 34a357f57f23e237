"""Retention takes nothing away that a recovery needs: random histories end as they would without it.

The histories are those of test_recovery_histories.py, with retention between their steps, as greedy as it can be.
"""

import os
from collections.abc import Callable, Iterator

import psycopg
import pytest

from db.settings import RetentionSettings
from devstack.databases import PostgresServer
from publisher.retention import prune as pruning
from publisher.retention import survey as surveying
from publisher.retention.plan import Needs
from publisher.retention.survey import survey
from spark_job.offsets import Offsets
from tests.integration.job import test_recovery_histories
from tests.integration.job.history import Connection, History, sessions_written
from tests.integration.job.memory_checkpoint import stand_ins
from tests.integration.job.test_recovery_histories import wrong
from tests.soak.stand import small_partitions

HISTORIES = int(os.environ.get("HISTORIES", "8"))
_ALL_DUE = RetentionSettings(keep_bytes=0)

Written = list[tuple[int, int, int, int, int]]
Play = Callable[[int], list[str]]


class KeptShort(History):
    """A history in which retention drops and prunes whatever it may after a third of the batches."""

    def __init__(self, connection: Connection, owner: Connection, seed: int) -> None:
        self.owner = owner
        self.dropped: Written = []
        self.pruned = 0
        self._greatest_done = Offsets()
        super().__init__(connection, seed)

    def batch(self, *, crash: str | None = None, most: int | None = None) -> None:
        super().batch(crash=crash, most=most)
        if self.chance.random() < 0.33:
            self.retain()

    def retain(self) -> None:
        """Deliver everything, then drop and prune. What goes is remembered, for the verdict."""
        self.owner.execute(
            "INSERT INTO outbox.lane (epoch, lane, seq, cursor_batch, cursor_commit_id)"
            " SELECT e.epoch, n, 1, b.batch_id, b.commit_id FROM outbox.lane_epoch e, generate_series(0, e.lanes - 1) n,"
            " (SELECT batch_id, commit_id FROM outbox.batch ORDER BY batch_id DESC LIMIT 1) b"
            " ON CONFLICT ON CONSTRAINT lane_pkey DO UPDATE"
            " SET cursor_batch = excluded.cursor_batch, cursor_commit_id = excluded.cursor_commit_id"
        )
        self._greatest_done = self._done()
        before = list(sessions_written(self.connection))
        for decision in survey(self.owner, _ALL_DUE).to_drop:
            name = decision.partition.name
            # Concurrently is for others' sake; there are none here.
            self.owner.execute(f"ALTER TABLE outbox.session_output DETACH PARTITION outbox.{name}")
            self.owner.execute(f"DROP TABLE outbox.{name}")
        left = list(sessions_written(self.connection))
        for session in left:
            before.remove(session)
        self.dropped += before
        self.pruned += pruning.prune(self.owner, 0, rows_at_once=3).batches

    def _done(self) -> Offsets:
        return super()._done().max(self._greatest_done)


@pytest.fixture
def play(postgres: PostgresServer, template_database: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Play]:
    """Plays the history of a seed; returns what is wrong at its end."""
    stand_ins(monkeypatch)
    pruned = 0

    def play(seed: int) -> list[str]:
        nonlocal pruned
        name = f"retained_{os.getpid()}_{seed}"
        dsn = postgres.create_database(name, template=template_database)
        try:
            small_partitions(dsn, 2, 150)
            with (
                psycopg.connect(dsn, autocommit=True, options="-c role=outbox_writer") as connection,
                psycopg.connect(dsn, autocommit=True) as owner,
            ):
                history = KeptShort(connection, owner, seed)
                monkeypatch.setattr(
                    test_recovery_histories,
                    "sessions_written",
                    lambda asked: [*history.dropped, *sessions_written(asked)],
                )
                history.run(5 + seed % 36)
                pruned += history.pruned
                return wrong(history)
        finally:
            postgres.drop_database(name)

    yield play
    assert pruned > 0, "retention never pruned anything: the histories prove nothing"


@pytest.mark.timeout(900)
def test_every_history_ends_as_without_retention(play: Play) -> None:
    for seed in range(HISTORIES):
        assert play(seed) == [], f"seed {seed}"


@pytest.mark.faults
@pytest.mark.timeout(3_600)
def test_outputs_after_the_oldest_open_session_are_needed(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without that rule, reading again leaves letters of what an output had covered."""

    original = surveying._needs
    monkeypatch.setattr(surveying, "_needs", lambda *a: _stripped(original(*a)))
    assert any(play(seed) for seed in range(200))


def _stripped(needs: Needs) -> Needs:
    return Needs(needs.newest_batch, needs.lanes, needs.parked, needs.replays, {})
