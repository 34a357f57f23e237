"""Retention takes nothing away that a recovery needs: random histories end as they would without it.

The histories are those of test_histories.py, with retention between their batches, as greedy as it can be.
"""

import os
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import psycopg
import pytest

from devstack.databases import PostgresServer
from publisher.retention import prune as pruning
from publisher.retention.survey import survey
from service.settings import RetentionSettings
from tests.soak.stand import small_partitions
from tests.support.histories import steps
from tests.support.histories.history import History, SessionWritten, cut_into_small_pieces
from tests.support.histories.steps import KINDS
from tests.support.histories.verdict import wrong_letters, wrong_outputs

HISTORIES = int(os.environ.get("HISTORIES", "9"))
_ALL_DUE = RetentionSettings(keep_bytes=0).model_copy(update={"keep_ledger_s": 0})

RunHistory = Callable[..., list[str]]
"""(seed, what happens: random steps by default) -> what is wrong at the end."""


class KeptShort(History):
    """A history in which retention drops and prunes whatever it may after a third of the batches."""

    def __init__(self, dsn: str, folder: Path, seed: int, patch: pytest.MonkeyPatch) -> None:
        super().__init__(dsn, folder, seed, patch)
        self.owner: psycopg.Connection[Any] = psycopg.connect(dsn, autocommit=True)
        self.dropped: list[SessionWritten] = []
        self.pruned = 0

    def close(self) -> None:
        super().close()
        self.owner.close()

    def batch(self, most: int | None = None) -> None:
        super().batch(most)
        if self.chance.random() < 0.33:
            self.retain()

    def sessions_written(self) -> Iterator[SessionWritten]:
        return chain(self.dropped, super().sessions_written())

    def retain(self) -> None:
        """Deliver everything, then drop and prune. What goes is remembered, for the verdict."""
        self.owner.execute(
            "INSERT INTO outbox.lane (epoch, lane, seq, cursor_batch, cursor_commit_id)"
            " SELECT e.epoch, n, 1, b.batch_id, b.commit_id FROM outbox.lane_epoch e, generate_series(0, e.lanes - 1) n,"
            " (SELECT batch_id, commit_id FROM outbox.batch ORDER BY batch_id DESC LIMIT 1) b"
            " ON CONFLICT ON CONSTRAINT lane_pkey DO UPDATE"
            " SET cursor_batch = excluded.cursor_batch, cursor_commit_id = excluded.cursor_commit_id"
        )
        before = list(super().sessions_written())
        for decision in survey(self.owner, _ALL_DUE).to_drop:
            name = decision.partition.name
            # Concurrently is for others' sake; there are none here.
            self.owner.execute(f"ALTER TABLE outbox.session_output DETACH PARTITION outbox.{name}")
            self.owner.execute(f"DROP TABLE outbox.{name}")
        for session in super().sessions_written():
            before.remove(session)
        self.dropped += before
        self.pruned += pruning.prune(self.owner, _ALL_DUE, 0, rows_at_once=3).batches


@pytest.fixture
def small_template(postgres: PostgresServer, template_database: str) -> Iterator[str]:
    """Name of a database as `template_database`, in which the outputs lie in small partitions."""
    name = f"{template_database}_retained"
    small_partitions(postgres.create_database(name, template=template_database), 2, 60)
    yield name
    postgres.drop_database(name)


@pytest.fixture
def run_history(
    postgres: PostgresServer, small_template: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[RunHistory]:
    """Runs the history of a seed; returns what is wrong at its end."""
    cut_into_small_pieces(monkeypatch)
    pruned = dropped = 0

    def run_history(seed: int, happens: Callable[[KeptShort], None] | None = None) -> list[str]:
        nonlocal pruned, dropped
        name = f"retained_{os.getpid()}_{seed}"
        dsn = postgres.create_database(name, template=small_template)
        try:
            history = KeptShort(dsn, tmp_path / f"{seed}", seed, monkeypatch)
            try:
                history.begin()
                if happens is not None:
                    happens(history)
                else:
                    steps.run_history(history, 5 + seed % 36, KINDS[seed % len(KINDS)])
                return [*wrong_outputs(history), *wrong_letters(history)]
            finally:
                pruned, dropped = pruned + history.pruned, dropped + len(history.dropped)
                history.close()
        finally:
            postgres.drop_database(name)

    yield run_history
    assert pruned > 0, "retention never pruned anything: the histories prove nothing"
    assert dropped > 0, "retention never dropped anything: the histories prove nothing"


@pytest.mark.guarantee(96)
@pytest.mark.timeout(1_800)
def test_every_history_ends_as_without_retention(run_history: RunHistory) -> None:
    for seed in range(9, 9 + HISTORIES):
        assert run_history(seed) == [], f"seed {seed}"


def requeue_prune_and_restart(history: KeptShort) -> None:
    """Batches that read nothing follow the newest one that did: it lies below the floor of retention."""
    for _ in range(4):
        history.batch(2)
    for _ in range(6):
        history.owner.execute(
            "INSERT INTO outbox.batch (batch_id, kind, generation, run_id, transform_fingerprint)"
            " SELECT max(batch_id) + 1, 'requeue', max(generation), gen_random_uuid(), 'requeue' FROM outbox.batch"
        )
    history.retain()
    history.restart()
    history.finish()


SEEDS = range(3)


def test_a_restart_finds_its_position_behind_requeued_batches(run_history: RunHistory) -> None:
    for seed in SEEDS:
        assert run_history(seed, requeue_prune_and_restart) == [], f"seed {seed}"


def test_each_generations_newest_row_is_needed(
    run_history: RunHistory, postgres: PostgresServer, small_template: str
) -> None:
    """Without that rule, a start does not find its own position."""
    rule = "AND (a.kind <> 'stream' OR a.batch_id < newest.batch_id)"
    with psycopg.connect(postgres.dsn(small_template), autocommit=True) as owner:
        function = "SELECT pg_get_functiondef('outbox.prune_batches(double precision, bigint, integer)'::regprocedure)"
        ((text,),) = owner.execute(function).fetchall()
        assert rule in text
        owner.execute(text.replace(rule, ""))
    found = [wrong for seed in SEEDS for wrong in ends(run_history, seed)]
    assert found, "all histories ended well without the rule"


def ends(run_history: RunHistory, seed: int) -> list[str]:
    """What is wrong at the end, or the failure that came before."""
    try:
        return run_history(seed, requeue_prune_and_restart)
    except (TypeError, AttributeError, NameError):
        raise  # the test is wrong
    except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - whatever it leads to
        return [repr(error)]
