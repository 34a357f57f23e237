"""An archive in S3 keeps the promises of one in a folder: on a real server, and through a proxy that makes it fail."""

import random
import signal
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen
from uuid import UUID, uuid4

import psycopg
import pyarrow.dataset
import pytest

from devstack.processes.port import LOOPBACK
from publisher.archive.bucket import ArchiveBucket
from publisher.archive.files import OWNER, FileMissingError, data_name
from service.lifecycle.fault_points import Action, Fault
from service.settings import Settings
from tests.support.outbox.audits import counted, failed, run_audit
from tests.support.outbox.batches import Outbox
from tests.support.outbox.old_outputs import Command, partitions, retention_settings
from tests.support.processes.archiving import STEPS, stored_rows
from tests.support.processes.erasing import erased
from tests.support.processes.publishers import settings_for
from tests.support.queries import query
from tests.support.s3 import proxy as s3_proxy
from tests.support.s3.server import BUCKET, CREDENTIALS, client, s3_server

_UUID = UUID(int=7)
_PARTITION = "session_output_p00000001"
# In a folder every run tries them all (test_archiving.py).
_IN_EVERY_RUN = ("archive.after_manifest", "retention.before_drop")
IN_A_BUCKET = [
    pytest.param(*step, marks=() if step[0] in _IN_EVERY_RUN else pytest.mark.faults) for step in STEPS
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a server of S3."""
    with s3_server(tmp_path_factory.mktemp("s3") / "log") as port:
        yield port


@pytest.fixture
def proxy(server: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[s3_proxy.S3Proxy]:
    """What the clients of this test talk to, with credentials in the environment."""
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    with s3_proxy.S3Proxy(server) as running:
        yield running


@pytest.fixture
def prefix() -> str:
    """A part of the bucket for this test."""
    return f"{BUCKET}/{uuid4().hex}"


@pytest.fixture
def settings(old: Outbox, proxy: s3_proxy.S3Proxy, prefix: str) -> Settings:
    """Settings of retention with an archive there."""
    return retention_settings(
        old.dsn,
        archive=f"s3://{prefix}",
        archive_region="us-east-1",
        archive_endpoint=f"http://127.0.0.1:{proxy.port}",
    )


@pytest.fixture
def retention(settings: Settings, tmp_path: Path) -> Command:
    """`publisher retention` with them."""
    return Command(settings, tmp_path)


@pytest.fixture
def bucket(proxy: s3_proxy.S3Proxy, prefix: str) -> ArchiveBucket:
    return ArchiveBucket(prefix, "us-east-1", f"http://127.0.0.1:{proxy.port}", _UUID)


def keys(server: int, prefix: str) -> list[str]:
    """The objects below the prefix, without its outbox."""
    found = client(server).get_file_info(
        pyarrow.fs.FileSelector(prefix, recursive=True, allow_not_found=True)
    )
    return sorted(each.path.removeprefix(f"{prefix}/").partition("/")[2] for each in found if each.is_file)


def add_large_rows(outbox: Outbox) -> list[dict[str, object]]:
    """Add rows that take more than one row group, and so an upload in parts; return what is to be archived."""
    values = random.Random(0).randbytes
    query(
        outbox.dsn,
        'UPDATE outbox.session_output SET "values" = ARRAY[%s, %s, %s]::bytea[] WHERE batch_id < 3 AND cardinality("values") = 3',
        *(values(3_000_000) for _ in range(3)),
    )
    return stored_rows(outbox.dsn, 19_999)


def sent_parts(proxy: s3_proxy.S3Proxy) -> int:
    return sum(method == "PUT" and "partNumber=" in path for method, path in proxy.requests)


def unfinished(server: int, prefix: str) -> int:
    """How many uploads nobody has completed."""
    bucket, _, below = prefix.partition("/")
    with urlopen(f"http://{LOOPBACK}:{server}/{bucket}?uploads&prefix={below}") as answer:
        return int(answer.read().count(b"<UploadId>"))


def assert_archived(server: int, prefix: str, stored: list[dict[str, object]]) -> None:
    """The archive has these rows, as anybody's pyarrow reads it, and no file more."""
    table = pyarrow.dataset.dataset(
        prefix, filesystem=client(server), format="parquet", partitioning="hive"
    ).to_table()
    rows = table.sort_by([("batch_id", "ascending"), ("session_key", "ascending")]).to_pylist()
    assert [{name: row[name] for name in stored[0]} for row in rows] == stored
    assert [key.split("=")[0].split("/")[0] for key in keys(server, prefix)] == ["_manifests"] * 3 + [
        "day"
    ] * 3
    assert OWNER in keys(server, prefix)


@pytest.mark.guarantee(184)
@pytest.mark.guarantee(186)
def test_it_is_written_audited_and_erased_as_in_a_folder(
    old: Outbox, retention: Command, settings: Settings, server: int, prefix: str, tmp_path: Path
) -> None:
    stored = stored_rows(old.dsn, 19_999)
    code, output = retention.run("run", "--yes")
    assert (code, "archived before that: 15 rows" in output) == (0, True), output
    assert CREDENTIALS["AWS_SECRET_ACCESS_KEY"] not in output
    assert partitions(old.dsn)[0] == "2"
    assert_archived(server, prefix, stored)
    query(old.dsn, "DELETE FROM outbox.lane")
    auditing = settings_for(old.dsn, "127.0.0.1:1").model_copy(update={"retention": settings.retention})
    report = run_audit(auditing, tmp_path, archive=True)
    assert {name for name in failed(report) if name.startswith("archive_")} == set()
    assert counted(report, "archived_rows") == 15
    (of_key,) = erased(auditing, "k0001")["keys"]
    assert (of_key["archived_rows"], of_key["left"]) == (4, [])
    report = run_audit(auditing, tmp_path, archive=True)
    assert {name for name in failed(report) if name.startswith("archive_")} == set()
    assert_archived(server, prefix, [row for row in stored if row["session_key"] != "k0001"])


@pytest.mark.guarantee(184)
@pytest.mark.parametrize(("point", "hit", "left"), IN_A_BUCKET)
def test_a_kill_at_any_step_drops_nothing_unproven_and_is_mended_by_the_next_run(
    old: Outbox, retention: Command, server: int, prefix: str, point: str, hit: int, left: list[str]
) -> None:
    stored = stored_rows(old.dsn, 19_999)
    code, output = retention.run("run", "--yes", fault=Fault(point, Action.KILL, hit=hit))
    assert code == -signal.SIGKILL, output
    assert partitions(old.dsn)[: len(left)] == left
    code, output = retention.run("run", "--yes")
    assert (code, partitions(old.dsn)[0]) == (0, "2"), output
    assert_archived(server, prefix, stored)


FAILURES: dict[str, tuple[s3_proxy.Fault, str]] = {
    "denied": (lambda method, path: (403, "AccessDenied"), "allowed to list the bucket"),
    "read only": (
        lambda method, path: (403, "AccessDenied") if method == "PUT" else None,
        "allowed to list the bucket",
    ),
    "full": (lambda method, path: (507, "QuotaExceeded") if method == "PUT" else None, "as the test wants"),
    "busy": (
        lambda method, path: (503, "SlowDown") if method == "PUT" and "day" in path else None,
        "not archived",
    ),
    "answers are cut": (
        lambda method, path: 40 if method == "GET" and ".parquet" in path else None,
        "not archived",
    ),
    "another region": (lambda method, path: (301, "PermanentRedirect"), "archive_region"),
}


@pytest.mark.guarantee(184)
@pytest.mark.parametrize(
    "failure",
    [
        pytest.param(each, marks=() if each in ("read only", "answers are cut") else pytest.mark.faults)
        for each in FAILURES
    ],
)
def test_a_server_that_fails_keeps_the_partition_until_it_works_again(
    old: Outbox, retention: Command, proxy: s3_proxy.S3Proxy, server: int, prefix: str, failure: str
) -> None:
    fault, remedy = FAILURES[failure]
    stored = stored_rows(old.dsn, 19_999)
    proxy.fault = fault
    code, output = retention.run("run", "--yes")
    assert (code, remedy in output) == (6, True), output
    assert partitions(old.dsn)[0] == "0"
    assert query(old.dsn, "SELECT count(*) FROM outbox.archived") == [(0,)]
    proxy.fault = lambda method, path: None
    code, output = retention.run("run", "--yes")
    assert (code, partitions(old.dsn)[0]) == (0, "2"), output
    assert_archived(server, prefix, stored)


@pytest.mark.guarantee(184)
def test_a_kill_in_the_middle_of_an_upload_leaves_nothing_that_a_query_sees(
    old: Outbox, retention: Command, proxy: s3_proxy.S3Proxy, server: int, prefix: str
) -> None:
    stored = add_large_rows(old)
    code, output = retention.run("run", "--yes", fault=Fault("archive.during_file", Action.KILL, hit=1))
    assert code == -signal.SIGKILL, output
    assert sent_parts(proxy) > 0
    assert unfinished(server, prefix) == 1
    assert [key for key in keys(server, prefix) if key != OWNER] == []
    assert partitions(old.dsn)[0] == "0"
    code, output = retention.run("run", "--yes")
    assert (code, partitions(old.dsn)[0]) == (0, "2"), output
    assert unfinished(server, prefix) == 1, "a rule of the bucket removes it, see docs/archive.md"
    assert_archived(server, prefix, stored)


@pytest.mark.guarantee(184)
@pytest.mark.parametrize(
    "failing", ["a part", *(pytest.param(each, marks=pytest.mark.faults) for each in ("the end", "the name"))]
)
def test_an_upload_that_fails_leaves_nothing_that_a_query_sees(
    old: Outbox, retention: Command, proxy: s3_proxy.S3Proxy, server: int, prefix: str, failing: str
) -> None:
    """Not even where nothing can be removed any more."""
    stored = add_large_rows(old)

    def fault(method: str, path: str) -> tuple[int, str] | None:
        fails = {
            "a part": method == "PUT" and "partNumber=2&" in path,
            "the end": method == "POST" and "uploadId=" in path,
            "the name": method == "PUT" and "/day" in path,
        }[failing]
        return (403, "AccessDenied") if fails or method == "DELETE" else None

    proxy.fault = fault
    code, output = retention.run("run", "--yes")
    assert (code, "allowed to list the bucket" in output) == (6, True), output
    assert sent_parts(proxy) > 0
    assert [key for key in keys(server, prefix) if key.startswith("day")] == []
    assert partitions(old.dsn)[0] == "0"
    proxy.fault = lambda method, path: None
    code, output = retention.run("run", "--yes")
    assert (code, partitions(old.dsn)[0]) == (0, "2"), output
    assert_archived(server, prefix, stored)


def test_a_server_or_a_bucket_that_is_not_there_is_named(
    old: Outbox, settings: Settings, tmp_path: Path
) -> None:
    def run(**values: str) -> tuple[int, str]:
        changed = settings.retention.model_copy(update=values)
        return Command(settings.model_copy(update={"retention": changed}), tmp_path).run("run", "--yes")

    code, output = run(archive_endpoint="http://127.0.0.1:9")
    assert (code, "[retention] archive_endpoint" in output) == (6, True), output
    code, output = run(archive="s3://another-bucket")
    assert (code, "there is no bucket 'another-bucket'" in output) == (2, True), output
    assert partitions(old.dsn)[0] == "0"


def test_a_large_object_comes_back_and_half_of_one_never_has_its_name(
    bucket: ArchiveBucket, proxy: s3_proxy.S3Proxy
) -> None:
    name, half = data_name("2026-01-31", _PARTITION, 0), data_name("2026-01-31", _PARTITION, 1)
    content = bytes(range(256)) * 100_000
    with bucket.create(name) as sink:
        sink.write(content)
        assert bucket.names() == [], "nobody sees it before it is whole"
    with bucket.open(name) as source:
        assert (source.seekable(), source.read(len(content) + 1)) == (False, content)

    def fail() -> None:
        with bucket.create(half) as sink:
            sink.write(content)
            raise psycopg.OperationalError("the connection is lost")

    with pytest.raises(psycopg.OperationalError):
        fail()
    assert bucket.names() == [name]
    proxy.fault = lambda method, path: (403, "AccessDenied") if method == "DELETE" else None
    with pytest.raises(psycopg.OperationalError):
        fail()
    proxy.fault = lambda method, path: None
    assert [each.split("/")[0] for each in bucket.names()] == ["_writing", "day=2026-01-31"]
    bucket.remove([*bucket.names(), half])
    assert bucket.names() == []
    with pytest.raises(FileMissingError), bucket.open(name):
        pass


def test_a_key_that_the_server_does_not_know_is_named_and_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The server checks keys after the two requests that make the bucket.
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    with s3_server(tmp_path / "log", INITIAL_NO_AUTH_ACTION_COUNT="2") as port:
        with pytest.raises(OSError, match=r"right is missing|key is unknown") as refused:
            ArchiveBucket(BUCKET, "us-east-1", f"http://127.0.0.1:{port}", _UUID)
        assert CREDENTIALS["AWS_SECRET_ACCESS_KEY"] not in str(refused.value)
