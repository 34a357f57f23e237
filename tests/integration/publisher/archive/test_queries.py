"""The statements of docs/archive.md read an archive that retention has written, as pyarrow, DuckDB and Spark run them."""

import json
import os
import pickle
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import duckdb
import pyspark
import pytest

from devstack.processes.port import LOOPBACK
from publisher.retention.retention import run_once
from spark_job.spark.jars import resolve
from tests.support.outbox.batches import Outbox
from tests.support.outbox.old_outputs import retention_settings
from tests.support.pages.markdown import code_block
from tests.support.paths import ROOT
from tests.support.processes.archiving import archive_settings, stored_rows
from tests.support.queries import query
from tests.support.s3.server import BUCKET, CREDENTIALS, s3_server

PAGE = Path("docs/archive.md")
S3A = Path(__file__).with_name("hadoop_s3a.lock")

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


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a server of S3."""
    with s3_server(tmp_path_factory.mktemp("s3") / "log") as port:
        yield port


@pytest.fixture
def archive_in_s3(old: Outbox, expected: Expected, s3: int, monkeypatch: pytest.MonkeyPatch) -> str:
    """The place of an archive in S3, with credentials in the environment."""
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    place = f"{BUCKET}/{uuid4().hex}"
    settings = retention_settings(
        old.dsn,
        archive=f"s3://{place}",
        archive_region="us-east-1",
        archive_endpoint=f"http://{LOOPBACK}:{s3}",
    )
    assert run_once(settings).archived_rows == 15
    return place


@pytest.fixture
def spark(s3: int, tmp_path: Path) -> Callable[[str], Found]:
    """Runs a block of code in a process of its own: jars are only for the first session of a JVM, and tests share one in a process."""
    options = {
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
        "spark.jars": ",".join(map(str, resolve(S3A))),
        "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
        # Of a server that is not AWS'.
        "spark.hadoop.fs.s3a.endpoint": f"http://{LOOPBACK}:{s3}",
        "spark.hadoop.fs.s3a.path.style.access": "true",
    }
    settings = {"master": "local[1]", "cache": str(tmp_path / "cache"), "spark_options": options}
    result = tmp_path / "rows"

    def run(code: str) -> Found:
        told = json.dumps({"settings": settings, "code": code, "result": str(result)})
        subprocess.run(
            [sys.executable, "-c", _PROGRAM],
            input=told,
            text=True,
            check=True,
            cwd=ROOT,
            env=os.environ | CREDENTIALS,
        )
        return outputs_of(pickle.loads(result.read_bytes()))

    return run


_PROGRAM = """
import json, pathlib, pickle, sys
from service.settings import JobSettings
from spark_job.spark.lazy_session import LazySession
told = json.load(sys.stdin)
session = LazySession(JobSettings(**told["settings"]))
names = {"spark": session.get()}
exec(told["code"], names)
rows = [(row.session_key, row.topics, row["values"]) for row in names["rows"].collect()]
pathlib.Path(told["result"]).write_bytes(pickle.dumps(rows))
session.stop()
"""
"""Spark as the job starts it, with Hadoop's client of S3 and the modules of AWS' SDK that it needs."""


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


def test_spark(archive: str, expected: Expected, spark: Callable[[str], Found]) -> None:
    code = expected.page(code_block(PAGE, "python", 'spark.read.parquet("/'), archive)
    assert spark(code) == expected.outputs


def test_pyarrow_and_duckdb_in_s3(archive_in_s3: str, expected: Expected, s3: int) -> None:
    code = expected.page(code_block(PAGE, "python", "S3FileSystem"), archive_in_s3)
    region = 'region="eu-central-1"'
    assert region in code
    own = f'region="us-east-1", scheme="http", endpoint_override="{LOOPBACK}:{s3}"'
    assert outputs_of(rows_of(code.replace(region, own))) == expected.outputs


def test_spark_in_s3(archive_in_s3: str, expected: Expected, spark: Callable[[str], Found]) -> None:
    (named,) = re.findall(r"org\.apache\.hadoop:hadoop-aws:[\d.]+", (ROOT / PAGE).read_text("utf-8"))
    assert f"\n{named} " in S3A.read_text("utf-8")
    assert f"hadoop-client-api-{named.rpartition(':')[2]}.jar" in os.listdir(
        Path(pyspark.__file__).with_name("jars")
    )
    code = expected.page(code_block(PAGE, "python", "s3a://"), archive_in_s3)
    assert spark(code) == expected.outputs
