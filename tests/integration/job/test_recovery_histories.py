"""Random histories of crashes, lost checkpoints and restores end with every session exactly once; each rule of design §3.4 is needed.

HISTORIES asks for more of them, HISTORY_SEED begins elsewhere.
"""

import os
from collections import Counter
from collections.abc import Callable

import psycopg
import pytest

from devstack.databases import PostgresServer
from spark_job.assembly import assembly_settings
from spark_job.offsets import TopicPartition
from tests.acceptance.expectation import spark_hash
from tests.integration.job.history import TOPIC_ID, History, sessions_written, stand_ins
from tests.reference.model import expected_sessions

HISTORIES = int(os.environ.get("HISTORIES", "40"))
SEED = int(os.environ.get("HISTORY_SEED", "0"))
TRIES_FOR_A_MUTANT = 150

Play = Callable[[int], list[str]]


@pytest.fixture
def play(
    postgres: PostgresServer, template_database: str, monkeypatch: pytest.MonkeyPatch
) -> Callable[[int], list[str]]:
    """Plays the history of a seed in an outbox of its own; returns what is wrong at its end."""
    stand_ins(monkeypatch)

    def play(seed: int) -> list[str]:
        name = f"history_{os.getpid()}_{seed}"
        dsn = postgres.create_database(name, template=template_database)
        try:
            with psycopg.connect(dsn, autocommit=True, options="-c role=outbox_writer") as connection:
                history = History(connection, seed)
                history.run(5 + seed % 36)
                return wrong(history)
        finally:
            postgres.drop_database(name)

    return play


def wrong(history: History) -> list[str]:
    """What differs from the reference model, read one record after the other."""
    records = [record for partition in history.log for record in partition]
    # Every key its own clock: then nothing depends on how many buckets there were.
    expected = expected_sessions(
        records, assembly_settings(history.settings), lambda key: spark_hash(key.encode())
    )
    starts = {(s.source, s.end_offset): s.start_offset for s in expected.sessions}
    written = list(sessions_written(history.connection))
    sent = Counter((partition, end, revision) for _, partition, _, end, revision in written)
    found = [f"sent {n} times: {place}" for place, n in sent.items() if n > 1]
    for generation, partition, first, end, revision in written:
        if starts.get((partition, end)) != first:
            found.append(
                f"cut short: {partition}/{first}-{end}, revision {revision}, generation {generation}"
            )
        before = history.skips.get(generation)
        if before is not None and end < before.at(TopicPartition(TOPIC_ID, partition)):
            found.append(f"sent although skipped: {partition}/{end} in generation {generation}")
    found += [f"missing: {place}" for place in starts if place not in {(p, e) for p, e, _ in sent}]
    if history.reissue is not None:
        floor, revision = history.reissue.floor, history.reissue.revision
        found += [
            f"not reissued: {p}/{end}"
            for p, end in starts
            if end >= floor.at(TopicPartition(TOPIC_ID, p)) and (p, end, revision) not in sent
        ]
    letters = {(x.source, x.first_offset, x.reason) for x in expected.letters}
    silent = {(x.source, x.start_offset, "timed_out") for x in expected.open}
    return found + wrong_letters(history, letters, silent)


def wrong_letters(
    history: History, expected: set[tuple[int, int, str]], silent: set[tuple[int, int, str]]
) -> list[str]:
    """Each must be there, and nothing else. What only a silence closes depends on which keys share a bucket, so it may be there or not.

    `silent`: those of the sessions that are open at the log's end when no other key is a clock.
    """
    rows = history.connection.execute("SELECT partition, first_offset, reason FROM outbox.dead_letter")
    written = set(rows.fetchall())
    missing = {letter for letter in expected - written if letter[2] != "timed_out"}
    return [
        *(f"letter missing: {letter}" for letter in sorted(missing)),
        *(f"letter of nothing: {letter}" for letter in sorted(written - expected - silent)),
    ]


@pytest.mark.timeout(900)
def test_every_history_ends_with_every_session_once_for_each_revision(play: Play) -> None:
    for seed in range(SEED, SEED + HISTORIES):
        assert play(seed) == [], f"HISTORY_SEED={seed}"
