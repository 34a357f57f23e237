"""How Spark is started: with the options that the job rests on, and with no secret where others can read it."""

import os
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from service.errors import SettingsError
from service.kafka.transport import SPARK_CHANNELS
from service.settings import JobSettings
from spark_job.spark import lazy_session, session
from spark_job.spark.work_folder import WorkFolder

SECRET = 's3cret \\ "quoted" ü=:#'
VARIABLES = (
    "JAVA_HOME",
    "PYSPARK_PYTHON",
    "PYSPARK_DRIVER_PYTHON",
    "PYTHONPATH",
    "PYTHONWARNINGS",
    "SPARK_HOME",
    "SPARK_LOCAL_IP",
)


class Builder:
    """In the place of `SparkSession.builder`: looks at what a JVM that starts now is given."""

    def __init__(self) -> None:
        self.arguments: list[str] = []
        self.properties: dict[str, str] = {}
        self.mode = 0
        self.configured: dict[str, str] = {}

    def config(self, name: str, value: str) -> "Builder":
        self.configured[name] = value
        return self

    def getOrCreate(self) -> SimpleNamespace:  # noqa: N802 - Spark's own name
        self.arguments = shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", ""))
        if "--properties-file" in self.arguments:
            file = Path(self.arguments[self.arguments.index("--properties-file") + 1])
            self.mode = file.stat().st_mode & 0o777
            self.properties = read_properties(file.read_text("utf-8"))
        options = SimpleNamespace(getAll=lambda: list(self.properties.items()))
        return SimpleNamespace(
            sparkContext=SimpleNamespace(master=self.properties["spark.master"], getConf=lambda: options)
        )


def read_properties(text: str) -> dict[str, str]:
    """As java.util.Properties reads `name=value` lines."""
    found = {}
    for line in text.splitlines():
        name, _, value = line.partition("=")
        found[name] = re.sub(
            r"\\(.)", lambda escape: {"n": "\n", "r": "\r"}.get(escape[1], escape[1]), value.lstrip()
        )
    return found


@pytest.fixture
def builder(monkeypatch: pytest.MonkeyPatch) -> Builder:
    for name in VARIABLES:
        monkeypatch.setenv(name, "/nowhere")
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS", raising=False)
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    monkeypatch.setattr("spark_job.spark.jvm.start", lambda: None)
    found = Builder()
    monkeypatch.setattr(session, "SparkSession", SimpleNamespace(builder=found))
    monkeypatch.setattr("spark_job.spark.jvm_environment.temporary_files", lambda folder, _cache: folder)
    monkeypatch.setattr(session, "serve_results_over_tcp", lambda _session: None)
    monkeypatch.setattr(session, "java_executable", lambda: "/nowhere/bin/java")
    monkeypatch.setattr(session, "spark_connector_jars", lambda: [Path("/jars/a.jar"), Path("/jars/b.jar")])
    return found


Starting = Callable[..., dict[str, str]]


@pytest.fixture
def start(builder: Builder, monkeypatch: pytest.MonkeyPatch) -> Starting:
    """Start Spark with some of `[job]`; return the options that the JVM is given."""

    def started(folder: Path | None = None, **job: Any) -> dict[str, str]:
        work = WorkFolder()
        if folder is not None:
            monkeypatch.setattr(WorkFolder, "path", folder)
        session.start_session(JobSettings(**job), work)
        work.remove()
        return builder.properties

    return started


@pytest.mark.guarantee(108)
def test_secrets_are_in_a_file_that_only_its_owner_reads_and_that_is_gone_afterwards(
    start: Starting, builder: Builder
) -> None:
    options = {"spark.ssl.keyPassword": SECRET, "spark.x": "first\nsecond", "spark.y": "=starts"}
    assert start(spark_options=options).items() >= options.items()
    assert builder.mode == 0o600
    assert builder.configured == {}
    told = " ".join(builder.arguments)
    assert "s3cret" not in told
    assert builder.arguments[-1] == "pyspark-shell"
    assert not Path(builder.arguments[builder.arguments.index("--properties-file") + 1]).exists()
    assert "PYSPARK_SUBMIT_ARGS" not in os.environ


def test_arguments_that_were_there_before_are_kept_and_put_back(
    start: Starting, builder: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--verbose pyspark-shell")
    start()
    assert builder.arguments[-2:] == ["--verbose", "pyspark-shell"]
    assert os.environ["PYSPARK_SUBMIT_ARGS"] == "--verbose pyspark-shell"


@pytest.mark.parametrize(
    "arguments", ["--master yarn", "--master='spark://a b:1'", "--verbose --conf spark.master=yarn"]
)
def test_a_master_that_the_environment_names_is_refused(
    start: Starting, monkeypatch: pytest.MonkeyPatch, arguments: str
) -> None:
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", f"{arguments} pyspark-shell")
    with pytest.raises(SettingsError, match=r"PYSPARK_SUBMIT_ARGS names a master: name it in \[job\] master"):
        start(master="local[2]")


def test_under_spark_submit_its_options_win_over_the_settings_and_these_over_ours() -> None:
    given = {"spark.sql.session.timeZone": "CET", "spark.master": "yarn"}
    own = {"spark.sql.session.timeZone": "EST", "spark.ui.enabled": "true"}
    added = session.added_options(given, own)
    assert added.keys().isdisjoint(given)
    assert added["spark.ui.enabled"] == "true"
    assert added["spark.sql.adaptive.enabled"] == "false"


Submitting = Callable[..., dict[str, str]]


@pytest.fixture
def submit(builder: Builder, monkeypatch: pytest.MonkeyPatch) -> Submitting:
    """Start as spark-submit does, with its options, and some of `[job]`; return the options that the session gets."""

    def submitted(given: dict[str, str], **job: Any) -> dict[str, str]:
        options = {"spark.jars": "/jars/spark-sql-kafka.jar"} | given
        context = SimpleNamespace(master=given["spark.master"], appName="sessions")
        monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
        monkeypatch.setattr(session, "SparkContext", SimpleNamespace(_ensure_initialized=lambda: None))
        monkeypatch.setattr(session, "SparkConf", lambda: SimpleNamespace(getAll=options.items))
        monkeypatch.setattr(session, "_configure_log", lambda *_: None)
        monkeypatch.setattr(builder, "getOrCreate", lambda: SimpleNamespace(sparkContext=context))
        work = WorkFolder()
        session.start_session(JobSettings(**job), work)
        work.remove()
        return options | builder.configured

    return submitted


@pytest.mark.parametrize(
    ("master", "given", "protected"),
    [
        ("spark://master:7077", {}, True),
        ("spark://master:7077", {"spark.authenticate": "false"}, False),
        ("yarn", {}, False),  # spark-submit has decided that already
    ],
)
def test_under_spark_submit_a_secret_among_the_settings_protects_a_standalone_cluster(
    submit: Submitting, builder: Builder, master: str, given: dict[str, str], protected: bool
) -> None:
    options = {"spark.authenticate.secret": SECRET}
    found = submit({"spark.master": master} | given, spark_options=options)
    assert builder.configured["spark.authenticate.secret"] == SECRET
    assert (SPARK_CHANNELS.items() <= found.items()) is protected


@pytest.mark.parametrize(
    ("master", "given", "named"),
    [
        ("spark://master:7077", {}, True),
        ("spark://master:7077", SPARK_CHANNELS, True),
        ("spark://master:7077", SPARK_CHANNELS | {"spark.authenticate.secret": SECRET}, False),
        ("spark://127.0.0.1:7077", {}, False),
        ("yarn", {}, True),
        ("yarn", SPARK_CHANNELS | {"spark.network.crypto.enabled": "false"}, True),
        ("yarn", SPARK_CHANNELS, False),
        ("k8s://https://kubernetes.example", {}, True),
        ("local[2]", {}, False),
    ],
)
def test_under_spark_submit_a_cluster_whose_connections_are_open_is_named(
    submit: Submitting, master: str, given: dict[str, str], named: bool
) -> None:
    """`[job] master` says nothing there."""
    with capture_logs() as logged:
        submit({"spark.master": master} | given)
    assert [line["address"] for line in logged if line["event"] == "connection_unprotected"] == [
        master
    ] * named
    assert "s3cret" not in str(logged)


@pytest.mark.parametrize(("options", "named"), [({}, []), ({"spark.authenticate": "false"}, ["yarn"])])
def test_a_cluster_whose_connections_the_settings_open_is_named(
    start: Starting, options: dict[str, str], named: list[str]
) -> None:
    with capture_logs() as logged:
        start(master="yarn", spark_options=options)
    assert [line["address"] for line in logged if line["event"] == "connection_unprotected"] == named


def test_threads_that_share_one_of_the_jvms_are_refused(
    start: Starting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_PIN_THREAD", "False")
    with pytest.raises(SettingsError, match=r"PYSPARK_PIN_THREAD=false.*unset it"):
        start()


def test_what_a_user_sets_wins(start: Starting) -> None:
    assert start(spark_options={"spark.sql.session.timeZone": "CET"})["spark.sql.session.timeZone"] == "CET"


def test_in_local_mode_work_files_and_sockets_are_in_the_processes_own_folder(
    start: Starting, tmp_path: Path
) -> None:
    folder = Path("/tmp/short")
    options = start(folder)
    assert options["spark.local.dir"] == options["spark.python.unix.domain.socket.dir"] == str(folder)
    assert options["spark.python.unix.domain.socket.enabled"] == "true"
    assert options["spark.driver.bindAddress"] == "127.0.0.1"


def test_on_a_cluster_nothing_names_a_folder_or_an_address_of_the_drivers_machine(start: Starting) -> None:
    options = start(master="spark://main:7077")
    assert options["spark.master"] == "spark://main:7077"
    assert {
        name for name in options if "socket.dir" in name or name in ("spark.local.dir", "spark.driver.host")
    } == set()


@pytest.mark.parametrize(
    ("master", "options", "are_protected"),
    [
        ("local[4]", {}, True),
        ("yarn", {}, True),
        ("k8s://https://kubernetes.example", {}, True),
        ("spark://main:7077", {}, False),
        ("spark://main:7077", {"spark.authenticate.secret": SECRET}, True),
    ],
)
def test_sparks_connections_are_protected_wherever_there_is_a_secret(
    start: Starting, master: str, options: dict[str, str], are_protected: bool
) -> None:
    found = start(master=master, spark_options=options)
    assert (SPARK_CHANNELS.items() <= found.items()) is are_protected
    off = dict.fromkeys(SPARK_CHANNELS, "off")
    assert start(master=master, spark_options=options | off).items() >= off.items()


@pytest.mark.parametrize(("length", "enabled"), [(64, True), (65, False), (300, False)])
def test_sockets_whose_path_the_system_would_not_take_are_done_without(length: int, enabled: bool) -> None:
    folder = Path("/" + "x" * (length - 1))
    assert session.sockets(folder) == (
        {"spark.python.unix.domain.socket.dir": str(folder)}
        if enabled
        else {"spark.python.unix.domain.socket.enabled": "false"}
    )


@pytest.mark.guarantee(25)
@pytest.mark.parametrize(
    ("master", "patient"),
    [
        ("local", "local[1,4]"),
        ("local[*]", "local[*,4]"),
        ("local[3]", "local[3,4]"),
        ("local[3,1]", "local[3,1]"),
        ("local-cluster[2,1,1024]", "local-cluster[2,1,1024]"),
        ("spark://main:7077", "spark://main:7077"),
        ("k8s://https://main", "k8s://https://main"),
    ],
)
def test_a_worker_that_dies_once_ends_no_query_in_local_mode(master: str, patient: str) -> None:
    assert session.patient(master) == patient


@pytest.mark.parametrize(("memory", "half"), [("4g", "2048m"), ("512m", "256m"), ("1m", "1m")])
def test_a_batchs_result_may_take_half_of_the_heap(start: Starting, memory: str, half: str) -> None:
    options = start(driver_memory=memory)
    assert (options["spark.driver.memory"], options["spark.driver.maxResultSize"]) == (memory, half)


def test_sparks_log_is_beside_the_cache_and_its_settings_are_there(start: Starting, tmp_path: Path) -> None:
    cache = tmp_path / "a cache"
    told = start(cache=str(cache))["spark.driver.extraJavaOptions"]
    assert f"-Doutbox.spark.log={cache / 'spark.log'}" in shlex.split(told)
    (settings,) = re.findall(r'"-Dlog4j2\.configurationFile=([^"]+)"', told)
    text = Path(settings).read_text("utf-8")
    assert "${sys:outbox.spark.log}" in text
    assert "appender.file.filePermissions = rw-------" in text


def test_spark_starts_although_the_folder_of_the_cache_cannot_be_used(
    start: Starting, tmp_path: Path
) -> None:
    """The cache may be lost, and the job then rebuilds what it held: it must not be needed for a start either."""
    (tmp_path / "file").touch()
    told = start(cache=str(tmp_path / "file"))["spark.driver.extraJavaOptions"]
    assert f"-Doutbox.spark.log={tmp_path / 'file' / 'spark.log'}" in shlex.split(told)


@pytest.mark.parametrize("is_link", [True, False])
def test_sparks_log_follows_no_link_and_no_file_of_another_user(
    start: Starting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_link: bool
) -> None:
    """It appends, and makes what it appends to its user's alone: any file of that user's, by a link in a shared folder."""
    mine, planted, work = tmp_path / ".profile", tmp_path / "spark.log", tmp_path / "work"
    mine.touch()
    work.mkdir()
    if is_link:
        planted.symlink_to(mine)
    else:
        planted.touch()
    uid = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: uid + 1)
    lstat = os.lstat
    monkeypatch.setattr(
        os, "lstat", lambda path: os.stat_result([*lstat(path)[:4], uid + 2, *lstat(path)[5:]])
    )
    with capture_logs() as logged:
        told = start(work, cache=str(tmp_path))["spark.driver.extraJavaOptions"]
    assert f"-Doutbox.spark.log={work / 'spark.log'}" in shlex.split(told)
    assert ("spark_log_elsewhere", str(planted)) in [(line["event"], line.get("named")) for line in logged]


def test_the_jvms_temporary_files_and_archive_may_have_spaces_in_their_paths(
    start: Starting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka's compression loads native code out of the JVM's temporary folder: it has to be the one that was found to allow that."""
    work, cache, archive = tmp_path / "work files", tmp_path / "a cache", tmp_path / "some classes.jsa"
    work.mkdir()
    asked: list[tuple[Path, str]] = []

    def temporary_files(folder: Path, of: str) -> Path:
        asked.append((folder, of))
        return cache / "jvm"

    monkeypatch.setattr("spark_job.spark.jvm_environment.temporary_files", temporary_files)
    monkeypatch.setattr(
        "spark_job.spark.class_archive.options", lambda _java: [f"-XX:SharedArchiveFile={archive}"]
    )
    monkeypatch.setattr("spark_job.spark.jvm_environment._is_known", lambda _user: False)
    told = shlex.split(start(work, cache=str(cache))["spark.driver.extraJavaOptions"])
    assert asked == [(work, str(cache))]
    assert f"-Djava.io.tmpdir={cache / 'jvm'}" in told
    assert f"-XX:SharedArchiveFile={archive}" in told
    assert f"--patch-module=jdk.security.auth={work / 'nameless-user'}" in told


@pytest.mark.parametrize(
    ("master", "given", "found"),
    [
        ("local[*]", None, "127.0.0.1"),
        ("local[*]", "10.0.0.7", "10.0.0.7"),
        ("spark://main:7077", None, None),
    ],
)
def test_a_local_spark_does_not_ask_for_the_machines_own_name(
    start: Starting, monkeypatch: pytest.MonkeyPatch, master: str, given: str | None, found: str | None
) -> None:
    if given is None:
        monkeypatch.delenv("SPARK_LOCAL_IP")
    else:
        monkeypatch.setenv("SPARK_LOCAL_IP", given)
    start(master=master)
    assert os.environ.get("SPARK_LOCAL_IP") == found


class SoundSession:
    """In the place of a session that runs and has nothing to do."""

    def __init__(self) -> None:
        self.streams = SimpleNamespace(active=[])
        stopped = SimpleNamespace(isStopped=lambda: False)
        self.sparkContext = SimpleNamespace(_jsc=SimpleNamespace(sc=lambda: stopped))

    def stop(self) -> None:
        """Nothing runs."""


@pytest.mark.parametrize("is_ours", [True, False])
def test_a_jvm_whose_work_files_fill_the_disk_is_replaced_where_another_one_can_be(
    monkeypatch: pytest.MonkeyPatch, is_ours: bool
) -> None:
    made: list[Any] = []

    def start_session(_settings: JobSettings, folder: WorkFolder, _function: str | None) -> Any:
        (folder.path / "shuffle").write_bytes(b"x")
        made.append(SoundSession())
        return made[-1]

    forgotten: list[int] = []
    monkeypatch.setattr(lazy_session, "start_session", start_session)
    monkeypatch.setattr("spark_job.spark.jvm.is_ours", lambda: is_ours)
    monkeypatch.setattr("spark_job.spark.jvm.forget", lambda: forgotten.append(1))
    spark = lazy_session.LazySession(JobSettings())
    try:
        spark.get()
        files = spark.folder.path
        assert spark.renew()
        assert (spark.get(), forgotten, files.exists()) == (made[0], [], True)
        assert spark.renew(tidy=True)
        assert files.exists() is not is_ours
        assert (len(forgotten), spark.get()) == (int(is_ours), made[-1])
        assert len(made) == 1 + is_ours
    finally:
        spark.stop()


def test_only_whole_slices_reach_a_task_and_nothing_runs_without_data(start: Starting) -> None:
    options = start()
    assert options["spark.sql.streaming.noDataMicroBatches.enabled"] == "false"
    assert options["spark.sql.adaptive.enabled"] == "false"
    assert options["spark.jars"] == "/jars/a.jar,/jars/b.jar"
