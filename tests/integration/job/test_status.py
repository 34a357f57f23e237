"""`spark-job status` says how much went into the outbox lately, out of the ledger."""

from collections.abc import Iterator

import psycopg
import pytest
from psycopg.types.json import Jsonb
from pydantic import SecretStr

from db.settings import PostgresSettings, Settings
from spark_job import OutputEvent, status
from spark_job.status import Rate
from tests.integration.job.sink_world import World, session


@pytest.fixture
def world(database: str) -> Iterator[World]:
    """Three batches: one of now, one of two minutes ago, one of ten minutes ago."""
    with psycopg.connect(database, autocommit=True) as connection:
        world = World(connection)
        for n, age in enumerate(("0 s", "2 min", "10 min")):
            world.plan(n, (10 * n, 0), (10 * n + 10, 0))
            world.write(n, session(f"key-{n}", 10 * n, 10 * n + 9, [OutputEvent("t", b"1")] * (n + 1)))
            connection.execute(
                "UPDATE outbox.batch SET created_at = now() - %s::interval, input_events = 600 WHERE spark_batch = %s",
                (age, n),
            )
        connection.execute(
            "UPDATE outbox.generation SET assembly = %s", [Jsonb({"buckets": 8, "shuffle_partitions": 2})]
        )
        yield world


def test_rates_are_of_the_last_minute_and_the_last_five(world: World, database: str) -> None:
    settings = Settings.model_construct(postgres=PostgresSettings(dsn=SecretStr(database)))
    found = status.read(settings)
    assert found.rates == [
        Rate(
            60, batches=1, input_events=600, sessions=1, output_events=1, dead_letters=0, duplicate_events=0
        ),
        Rate(
            300,
            batches=2,
            input_events=1_200,
            sessions=2,
            output_events=3,
            dead_letters=0,
            duplicate_events=0,
        ),
    ]
    shown = found.to_json()["rates"][1]
    assert (shown["seconds"], shown["input_events_per_second"], shown["output_events"]) == (300, 4.0, 3)
    rows = [str(cell) for column in status.table(found).columns for cell in column.cells]
    assert "2 batches, 1,200 events (4.0/s), 2 sessions (0.0/s), 3 outputs, 0 dead letters" in rows


def test_an_outbox_without_batches_has_rates_of_nothing(database: str) -> None:
    settings = Settings.model_construct(postgres=PostgresSettings(dsn=SecretStr(database)))
    assert status.read(settings).rates == [Rate(60, 0, 0, 0, 0, 0, 0), Rate(300, 0, 0, 0, 0, 0, 0)]
