"""`spark-job status` says how much went into the outbox lately, out of the ledger."""

from collections.abc import Iterator

import psycopg
import pytest
from pydantic import SecretStr

from service.commands.output import console
from service.settings import JobSettings, PostgresSettings, Settings
from spark_job import OutputEvent
from spark_job.status import job_status as status
from spark_job.status.job_status import BatchRate
from tests.support.recovery import starts
from tests.support.sink.batches import TOPIC_ID, SinkRun, session, still_open


@pytest.fixture
def sink_run(database: str) -> Iterator[SinkRun]:
    """Three batches: one of now, one of two minutes ago, one of ten minutes ago."""
    with psycopg.connect(database, autocommit=True) as connection:
        sink_run = SinkRun(connection)
        for n, age in enumerate(("0 s", "2 min", "10 min")):
            sink_run.plan(n, (10 * n, 0), (10 * n + 10, 0))
            sink_run.write(n, session(f"key-{n}", 10 * n, 10 * n + 9, [OutputEvent("t", b"1")] * (n + 1)))
            connection.execute(
                "UPDATE outbox.batch SET created_at = now() - %s::interval, input_events = 600 WHERE spark_batch = %s",
                (age, n),
            )
        yield sink_run


def printed(found: status.JobStatus, capsys: pytest.CaptureFixture[str]) -> str:
    status.print_status(console(), found)
    return capsys.readouterr().out


def test_rates_are_of_the_last_minute_and_the_last_five(
    sink_run: SinkRun, database: str, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = Settings.model_construct(postgres=PostgresSettings(dsn=SecretStr(database)))
    found = status.read(settings)
    assert found.rates == [
        BatchRate(
            60, batches=1, input_events=600, sessions=1, output_events=1, dead_letters=0, duplicate_events=0
        ),
        BatchRate(
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
    said = printed(found, capsys)
    assert "2 batches, 1,200 events (4.0/s), 2 sessions (0.0/s), 3 outputs, 0 dead letters\n" in said


def test_an_outbox_without_batches_has_rates_of_nothing(database: str) -> None:
    settings = Settings.model_construct(postgres=PostgresSettings(dsn=SecretStr(database)))
    assert status.read(settings).rates == [BatchRate(60, 0, 0, 0, 0, 0, 0), BatchRate(300, 0, 0, 0, 0, 0, 0)]


def test_the_position_and_what_is_open_there_are_the_newest_stream_rows(
    sink_run: SinkRun, database: str, capsys: pytest.CaptureFixture[str]
) -> None:
    sink_run.plan(3, (30, 0), (40, 7))
    sink_run.write(3, still_open(0, 33, 35), still_open(1, 2))
    settings = Settings.model_construct(postgres=PostgresSettings(dsn=SecretStr(database)), job=JobSettings())
    found = status.read(settings)
    shown = found.to_json()
    assert (shown["batch"], shown["generation"]) == (4, 1)
    assert (shown["start"]["run"], shown["start"]["restored"]) == (str(sink_run.run_id), "fresh")
    assert shown["end_offsets"] == {TOPIC_ID: {"0": 40, "1": 7}}
    assert shown["safe_offsets"] == {TOPIC_ID: {"0": 33, "1": 2}}
    assert shown["open"] == {"open_sessions": 3, "open_events": 6, "open_bytes": 30}
    assert "read to 40, 2 open since 33\n" in printed(found, capsys)


def test_the_ledger_s_newest_batch_is_shown_whatever_made_it(
    sink_run: SinkRun, database: str, capsys: pytest.CaptureFixture[str]
) -> None:
    sink_run.connection.execute(
        "INSERT INTO outbox.batch (batch_id, kind, generation, run_id, transform_fingerprint) VALUES (4, 'retry', 1, %s, 'test')",
        (sink_run.run_id,),
    )
    settings = Settings.model_construct(postgres=PostgresSettings(dsn=SecretStr(database)), job=JobSettings())
    found = status.read(settings)
    assert (found.to_json()["batch"], found.to_json()["ledger_batch"]) == (3, 4)
    said = printed(found, capsys)
    assert "batch 4 (retry), committed " in said
    assert "read by batch 3, committed " in said


def test_where_the_generation_began_and_why_is_shown_after_later_starts(
    database: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first start says it itself."""
    of = starts.settings(source={"topics": ["input"], "starting_offsets": {"input": {"0": 5, "1": 7}}})
    settings = Settings.model_construct(postgres=PostgresSettings(dsn=SecretStr(database)), job=JobSettings())
    why = "fresh start: the first generation reads from the offsets of [source] starting_offsets on"
    with psycopg.connect(database, autocommit=True) as connection:
        for _ in range(2):
            starts.start(connection, of=of)
            found = status.read(settings)
            assert printed(found, capsys).count(why) == 1
    shown = found.to_json()
    assert shown["generation_explanation"] == why
    assert shown["generation_offsets"] == {TOPIC_ID: {"0": 5, "1": 7}}
