"""The Spark session of the job, with the settings on which the pipeline's promises and speed rest."""

import contextlib
import os
import re
import shlex
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

import structlog
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from service.errors import SettingsError
from service.kafka.transport import SPARK_CHANNELS, name_open_cluster
from service.private_file import is_of_another_user
from service.settings import JobSettings
from spark_job.outputs.transform import share_working_directory
from spark_job.spark import class_archive, jvm, jvm_environment
from spark_job.spark.jars import java_executable, spark_connector_jars
from spark_job.spark.parallelism import CORES_OPTION, cores, local_threads
from spark_job.spark.result_server import UNIX_SOCKETS, serve_results_over_tcp
from spark_job.spark.shipping import ship_code
from spark_job.spark.work_folder import WorkFolder

log = structlog.get_logger()

_PANDAS_NOTICE = "PySpark does not yet fully support pandas"

_OPTIONS = {
    # A batch without data changes nothing: sessions time out by the input's clock, never by the wall clock.
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    # The checkpoint is removed when its query ends: neither its history nor the durability of its files matters.
    "spark.sql.streaming.minBatchesToRetain": "2",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.streaming.ui.enabled": "false",
    # Spark keeps the web interface's data in the heap, by default of a thousand batches, even without the interface.
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.ui.retainedTasks": "200",
    "spark.sql.ui.retainedExecutions": "20",
    "spark.python.worker.reuse": "true",
    # Workers are started by `python -m`, which would look for each module in the working directory first, whoever may write there.
    "spark.executorEnv.PYTHONSAFEPATH": "1",
    # Over TCP each exchange with a Python worker waits for a delayed acknowledgement.
    UNIX_SOCKETS: "true",
    # Kafka's consumers stay open between batches, also with hundreds of partitions.
    "spark.kafka.consumer.cache.capacity": "2048",
    # A slice may go to any executor: its open sessions are in a cache there or are rebuilt.
    "spark.locality.wait": "200ms",
    "spark.dynamicAllocation.enabled": "false",
    # A task's arguments are sent with it. Above this size Spark would first write them to a file, which stays until Spark ends.
    "spark.broadcast.UDFCompressionThreshold": "1g",
    # To stop a query, Spark must wait longer than a batch's computation and the commit before it take.
    "spark.sql.streaming.stopTimeout": "60s",
}
# In local mode Spark gives a task one chance: a worker that is killed once would end the query.
_LOCAL = re.compile(r"local(\[[\d*]+\])?")
_TASK_ATTEMPTS = 4
_LEAST_POLL_MS, _MOST_POLL_MS = 50, 500
_ALL_CORES = "local[*]"
# A batch repeats the same few loops. Only code that runs ten times as often as HotSpot's defaults require is compiled by the optimising
# compiler, which otherwise took half of the JVM's time in the first minutes, for code of planning and start.
_COMPILE_LATER = (
    "-XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000 "
    "-XX:Tier4CompileThreshold=150000 -XX:Tier4BackEdgeThreshold=400000"
)
_STANDALONE = "spark://"
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_JARS = "spark.jars"
_CONNECTOR = "spark-sql-kafka"
_LOG, _LOG_PROPERTY = "spark.log", "outbox.spark.log"
_LOG_SETTINGS = files("spark_job.spark").joinpath("log4j2.properties")
_SOCKET = "/.00000000-0000-0000-0000-000000000000.sock"
_MAX_SOCKET_PATH = 107


def start_session(settings: JobSettings, folder: WorkFolder, function: str | None = None) -> SparkSession:
    """Start Spark, or make the session in the JVM that spark-submit has started. `folder`: of the process.

    `function`: the transform, whose code is sent with ours to executors on other machines. Raises JarsError if Java is missing or of
    another version, or the connector's jars are missing and cannot be downloaded; SettingsError for an environment in which Spark cannot
    work; what `start_failure` returns if the JVM does not start.
    """
    java = java_executable()
    os.environ.setdefault("JAVA_HOME", os.path.dirname(os.path.dirname(os.path.realpath(java))))
    if os.environ.get("PYSPARK_PIN_THREAD", "true").lower() == "false":
        raise SettingsError(
            "PYSPARK_PIN_THREAD=false: the job needs a thread in the JVM for each of Python's threads; unset it"
        )
    share_working_directory()
    _silence_pandas_notice()
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if not submitted:
        jvm_environment.choose_spark_home()
        if settings.master.startswith("local"):
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # else Spark resolves the machine's own name
    _choose_python(settings, submitted=submitted)
    session = _join(settings, folder) if submitted else _start(settings, folder, java)
    serve_results_over_tcp(session)
    if function is not None and not str(session.sparkContext.master).startswith("local"):
        ship_code(session.sparkContext, function, folder.path)
    return session


def _choose_python(settings: JobSettings, *, submitted: bool) -> None:
    """Let workers beside this process run its Python, and all others the Python that PYSPARK_PYTHON or spark.pyspark.python names."""
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if settings.master.startswith("local") and not submitted:
        os.environ["PYSPARK_PYTHON"] = sys.executable
    else:
        os.environ.setdefault(
            "PYSPARK_PYTHON", settings.spark_options.get("spark.pyspark.python", sys.executable)
        )


def _refuse_master(arguments: str) -> None:
    """Raise SettingsError if PYSPARK_SUBMIT_ARGS, which wins over our file of options, names a master."""
    for argument in shlex.split(arguments):
        if argument == "--master" or argument.startswith("--master=") or "spark.master=" in argument:
            raise SettingsError(
                "PYSPARK_SUBMIT_ARGS names a master: name it in [job] master, on which the protection of Spark's connections depends"
            )


def _start(settings: JobSettings, folder: WorkFolder, java: str) -> SparkSession:
    _refuse_master(os.environ.get("PYSPARK_SUBMIT_ARGS", ""))
    own = settings.spark_options
    options = (
        _OPTIONS
        | _polling(settings)
        | {
            "spark.app.name": "spark-job",
            "spark.master": patient(settings.master),
            "spark.driver.memory": settings.driver_memory,
            # The result of a batch is in the heap and in this process at the same time.
            "spark.driver.maxResultSize": half(settings.driver_memory),
        }
    )
    if settings.master == _ALL_CORES:
        options["spark.master"], options[CORES_OPTION] = _oversubscribed()
    options |= _local_options(settings.master, folder) | protected_channels(settings.master, own) | own
    options[_JARS] = ",".join([*map(str, spark_connector_jars()), *filter(None, [own.get(_JARS)])])
    # In the process' own folder, so that a JVM that is killed leaves nothing.
    temporary = jvm_environment.temporary_files(folder.path, settings.cache)
    # A batch's garbage dies with the batch: throughput counts, pauses do not. The user's own options come last and win.
    java_options = [
        "-XX:+UseParallelGC",
        _COMPILE_LATER,
        jvm_environment.option(f"-Dlog4j2.configurationFile={_LOG_SETTINGS}"),
        jvm_environment.option(f"-D{_LOG_PROPERTY}={spark_log(settings, folder)}"),
        jvm_environment.option(f"-Djava.io.tmpdir={temporary}"),
        *map(jvm_environment.option, jvm_environment.user_options(folder.path)),
        *map(jvm_environment.option, class_archive.options(java)),
        own.get(_JAVA_OPTIONS, ""),
    ]
    options[_JAVA_OPTIONS] = " ".join(filter(None, java_options))
    with _given(options):
        jvm.start()
        session = SparkSession.builder.getOrCreate()
    name_open_cluster(str(session.sparkContext.master), dict(session.sparkContext.getConf().getAll()))
    return session


def _polling(settings: JobSettings) -> dict[str, str]:
    """Return how soon Kafka is polled again when there was nothing new. Spark's own 10 ms cost an idle job a quarter of a core."""
    return {"spark.sql.streaming.pollingDelay": f"{polling_delay_ms(settings.period_ms)}ms"}


def polling_delay_ms(period_ms: int) -> int:
    """Return how soon Kafka is polled again if batches are `period_ms` apart."""
    return min(_MOST_POLL_MS, max(_LEAST_POLL_MS, period_ms // 3))


def protected_channels(master: str, own: Mapping[str, str]) -> dict[str, str]:
    """Return options that authenticate and encrypt Spark's own connections: Spark makes a secret itself, except on a standalone cluster."""
    return standalone_channels(master, own) if master.startswith(_STANDALONE) else SPARK_CHANNELS


def standalone_channels(master: str, own: Mapping[str, str]) -> dict[str, str]:
    """Return the options that protect connections in a standalone cluster, if there is a secret. Empty for other masters."""
    return SPARK_CHANNELS if master.startswith(_STANDALONE) and "spark.authenticate.secret" in own else {}


def _local_options(master: str, folder: WorkFolder) -> dict[str, str]:
    """Return the options of a Spark in one process on this machine: no other process reaches it, and its files vanish with the process."""
    if not master.startswith("local"):
        return {}
    own = {
        # By number: not every machine resolves localhost to it, or resolves its own name.
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        # A task's rows are passed on within the JVM, not stored as a block that Spark then fetches from itself through a socket.
        "spark.task.maxDirectResultSize": "128m",
    }
    return own | {"spark.local.dir": str(folder.path)} | sockets(folder.path)


def _join(settings: JobSettings, folder: WorkFolder) -> SparkSession:
    """Make the session in spark-submit's JVM. Its options win over `[job] spark_options`, and these over ours.

    Only spark-submit sets the master, the memory and the options of the JVM: it is too late for ours.
    """
    SparkContext._ensure_initialized()
    given = dict(SparkConf().getAll())
    builder = SparkSession.builder  # each access makes a new one
    master, own = given["spark.master"], settings.spark_options
    options = _local_options(master, folder) | _polling(settings) | standalone_channels(master, own) | own
    for name, value in added_options(given, options).items():
        builder.config(name, value)
    session = builder.getOrCreate()
    _configure_log(settings, folder)
    named = f"{given.get(_JARS, '')},{given.get('spark.jars.packages', '')}"
    if _CONNECTOR not in named:
        # The driver's class path is fixed by now: the session loads these beside it, and sends them to the executors.
        for jar in spark_connector_jars():
            session.sql(f"ADD JAR '{jar}'")
    name_open_cluster(master, {**options, **given})
    log.info("spark_submitted", master=session.sparkContext.master, name=session.sparkContext.appName)
    return session


def added_options(given: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """Return the options to add to those of spark-submit. `own`: options that win over `_OPTIONS`."""
    return {name: value for name, value in {**_OPTIONS, **own}.items() if name not in given}


def _configure_log(settings: JobSettings, folder: WorkFolder) -> None:
    """Apply our log settings to a JVM that already runs: after the start of Spark, which applies its own."""
    virtual_machine = SparkContext._jvm
    assert virtual_machine is not None
    virtual_machine.java.lang.System.setProperty(_LOG_PROPERTY, spark_log(settings, folder))
    log_settings = virtual_machine.java.io.File(str(_LOG_SETTINGS)).toURI()
    virtual_machine.org.apache.logging.log4j.core.config.Configurator.reconfigure(log_settings)


def load_added_jars(session: SparkSession) -> None:
    """Let this thread, and the query that it starts, load jars that were added after the JVM's start."""
    loader = session._jsparkSession.sharedState().jarClassLoader()
    virtual_machine: Any = session.sparkContext._jvm
    virtual_machine.java.lang.Thread.currentThread().setContextClassLoader(loader)


def spark_log(settings: JobSettings, folder: WorkFolder) -> str:
    """Return the path of Spark's own log, which has warnings and all failures with their causes: a file in the folder of the cache.

    If another user has put a file or a link of that name there, to which Spark would append, the log is in this process's folder instead.
    """
    path = os.path.join(os.path.abspath(settings.cache), _LOG)
    with contextlib.suppress(OSError):
        if is_of_another_user(os.lstat(path)):
            own = str(folder.path / _LOG)
            log.warning("spark_log_elsewhere", named=path, used=own)
            return own
    return path


@contextmanager
def _given(options: Mapping[str, str]) -> Iterator[None]:
    """Pass options to the JVM in a file that only its owner can read: as arguments, every process list would show them."""
    before = os.environ.get("PYSPARK_SUBMIT_ARGS")
    with tempfile.NamedTemporaryFile(
        "w", prefix="spark-job-", suffix=".properties", encoding="utf-8"
    ) as file:
        file.writelines(f"{name}={_escaped(value)}\n" for name, value in options.items())
        file.flush()
        arguments = f"--properties-file {shlex.quote(file.name)} --load-spark-defaults"
        os.environ["PYSPARK_SUBMIT_ARGS"] = f"{arguments} {before or 'pyspark-shell'}"
        try:
            yield
        finally:
            if before is None:
                del os.environ["PYSPARK_SUBMIT_ARGS"]
            else:
                os.environ["PYSPARK_SUBMIT_ARGS"] = before


def _escaped(value: str) -> str:
    """Escape a value for a Java properties file."""
    escaped = value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    return "\\" + escaped if escaped.startswith((" ", "\t")) else escaped


def sockets(folder: Path) -> dict[str, str]:
    """Return options that put the Unix sockets into `folder`, or that avoid sockets if their paths would be too long for the system."""
    if len(os.fsencode(folder)) + len(_SOCKET) > _MAX_SOCKET_PATH:
        log.warning("no_unix_sockets", because=f"the path {folder} is too long; TMPDIR decides where it is")
        return {UNIX_SOCKETS: "false"}
    return {"spark.python.unix.domain.socket.dir": str(folder)}


def half(memory: str) -> str:
    """Return half of a heap's size in Spark's notation, in megabytes."""
    megabytes = int(memory[:-1]) * (1024 if memory[-1] == "g" else 1)
    return f"{max(1, megabytes // 2)}m"


def _oversubscribed() -> tuple[str, str]:
    """Return the master that replaces `local[*]`, and its cores."""
    available = cores()
    return patient(f"local[{local_threads(available)}]"), str(available)


def patient(master: str) -> str:
    """Return the master; in local mode, one that gives each task several attempts."""
    found = _LOCAL.fullmatch(master)
    if found is None:
        return master
    threads = (found[1] or "[1]").strip("[]")
    return f"local[{threads},{_TASK_ATTEMPTS}]"


def stop_session(session: SparkSession) -> None:
    """Stop Spark, unless a signal to the whole process group has already ended the JVM."""
    with contextlib.suppress(Py4JError, OSError):
        session.stop()


def stop_context() -> None:
    """Stop a context whose session could not be made, for lack of a master for instance: the next start would take it for a sound one."""
    context = SparkContext._active_spark_context
    if context is not None:
        with contextlib.suppress(Exception):
            context.stop()


def _silence_pandas_notice() -> None:
    """pyspark 4.2 warns at every use, in each worker too, that it does not fully support pandas 3; this job's use is tested with it."""
    warnings.filterwarnings("ignore", _PANDAS_NOTICE, FutureWarning)
    os.environ["PYTHONWARNINGS"] = ",".join(
        filter(None, [os.environ.get("PYTHONWARNINGS"), f"ignore:{_PANDAS_NOTICE}:FutureWarning"])
    )
