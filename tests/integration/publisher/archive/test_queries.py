"""The statements of docs/archive.md read an archive that retention has written, as pyarrow, DuckDB and Spark run them."""

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pytest
from pyspark.sql import SparkSession

from publisher.retention.keeper import run_once
from service.settings import JobSettings
from spark_job.spark.lazy_session import LazySession
from tests.support.outbox.batches import Outbox
from tests.support.outbox.old_outputs import retention_settings
from tests.support.pages.markdown import code_block
from tests.support.processes.archiving import archive_settings, stored_rows
from tests.support.queries import query
from tests.support.s3.server import BUCKET, CREDENTIALS, s3_server

PAGE = Path("docs/archive.md")

Found = Counter[tuple[str, str, bytes | None]]
"""The outputs of a day: session key, topic and value."""


class Expected(NamedTuple):
    """What the archive has of its first day. `page`: a text of the page with this archive in the place of its example."""

    outbox: str
    day: str
    outputs: Found

    def page(self, text: str, root: str) -> str:
        for example, own in (
            ("/var/lib/outbox-archive", root),
            ("BUCKET/PREFIX", root),
            ("outbox=<uuid>", f"outbox={self.outbox}"),
            ("2026-11-16", self.day),
        ):
            text = text.replace(example, own)
        return text


def outputs_of(rows: Iterable[tuple[str, Iterable[str], Iterable[Any]]]) -> Found:
    """The outputs of rows of the outbox."""
    return Counter(
        (key, topic, None if value is None else bytes(value))
        for key, topics, values in rows
        for topic, value in zip(topics, values, strict=True)
    )


@pytest.fixture
def expected(old: Outbox) -> Expected:
    """What Postgres has before it is dropped."""
    days = query(old.dsn, "SELECT batch_id, (created_at AT TIME ZONE 'UTC')::date::text FROM outbox.batch")
    first = min(day for _, day in days)
    batches = {batch_id for batch_id, day in days if day == first}
    rows = [row for row in stored_rows(old.dsn, 19_999) if row["batch_id"] in batches]
    ((outbox,),) = query(old.dsn, "SELECT outbox_uuid::text FROM outbox.identity")
    outputs = outputs_of((row["session_key"], row["topics"], row["values"]) for row in rows)
    assert None in {value for *_, value in outputs}
    return Expected(outbox, first, outputs)


@pytest.fixture
def archive(old: Outbox, expected: Expected, folder: Path) -> str:
    """The folder of an archive, with more days than that one."""
    assert run_once(archive_settings(old.dsn, folder)).archived_rows == 15
    return str(folder)


@pytest.fixture
def spark(tmp_path: Path) -> Iterator[SparkSession]:
    """Spark as the job starts it."""
    java = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"}
    session = LazySession(JobSettings(master="local[1]", cache=str(tmp_path), spark_options=java))
    try:
        yield session.get()
    finally:
        session.stop()


def rows_of(code: str, **names: Any) -> Any:
    """The `rows` of a block of code."""
    exec(code, names)
    return names["rows"]


def test_pyarrow_and_duckdb(archive: str, expected: Expected) -> None:
    code = expected.page(code_block(PAGE, "python", "import pyarrow.compute"), archive)
    rows = rows_of(code).to_pylist()
    assert outputs_of((row["session_key"], row["topics"], row["values"]) for row in rows) == expected.outputs
    statement = expected.page(code_block(PAGE, "sql", "read_parquet"), archive)
    assert Counter(duckdb.execute(statement).fetchall()) == expected.outputs


def test_spark(archive: str, expected: Expected, spark: SparkSession) -> None:
    code = expected.page(code_block(PAGE, "python", "spark.read"), archive)
    rows = rows_of(code, spark=spark).collect()
    assert outputs_of((row.session_key, row.topics, row["values"]) for row in rows) == expected.outputs


def test_pyarrow_and_duckdb_in_s3(
    old: Outbox, expected: Expected, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    with s3_server(tmp_path / "log") as port:
        settings = retention_settings(
            old.dsn,
            archive=f"s3://{BUCKET}/production",
            archive_region="us-east-1",
            archive_endpoint=f"http://127.0.0.1:{port}",
        )
        assert run_once(settings).archived_rows == 15
        code = expected.page(code_block(PAGE, "python", "S3FileSystem"), f"{BUCKET}/production")
        region = 'region="eu-central-1"'
        assert region in code
        own = f'region="us-east-1", scheme="http", endpoint_override="127.0.0.1:{port}"'
        assert outputs_of(rows_of(code.replace(region, own))) == expected.outputs
