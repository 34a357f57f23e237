"""The Spark session of the job, with the settings that the pipeline's promises and speed rest on."""

import contextlib
import os
import sys
import warnings
from importlib.resources import files

import structlog
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from db.settings import JobSettings
from spark_job import jvm
from spark_job.jars import java_executable, spark_connector_jars
from spark_job.transform import share_working_directory

log = structlog.get_logger()

_PANDAS_NOTICE = "PySpark does not yet fully support pandas"

_OPTIONS = {
    # Large enough to pack well, small enough that a task's memory stays bounded.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
    "spark.sql.execution.arrow.maxBytesPerBatch": "134217728",
    # A batch without data changes nothing here: sessions time out by the input's clock, never by the wall's.
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    # How many batches back offset log and state files reach. The ledger is the history; Spark needs the last few.
    "spark.sql.streaming.minBatchesToRetain": "20",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.streaming.ui.enabled": "false",
    # Local disks and loopback are faster than the codec.
    "spark.shuffle.compress": "false",
    "spark.shuffle.spill.compress": "false",
    "spark.python.worker.reuse": "true",
    # Stopping a query must outlast a batch's commit.
    "spark.sql.streaming.stopTimeout": "60s",
}


def start_session(settings: JobSettings) -> SparkSession:
    """Start Spark, or join the session that spark-submit made.

    Raises SettingsError when Java is missing or too old, and when the connector's jars cannot be had.
    """
    java = java_executable()
    os.environ.setdefault("JAVA_HOME", os.path.dirname(os.path.dirname(os.path.realpath(java))))
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    share_working_directory()
    log_settings = files("spark_job").joinpath("log4j2.properties")
    options = _OPTIONS | {
        "spark.jars": ",".join(str(jar) for jar in spark_connector_jars()),
        "spark.sql.shuffle.partitions": str(settings.shuffle_partitions),
        "spark.driver.memory": settings.driver_memory,
        "spark.driver.maxResultSize": settings.driver_memory,
        # A batch's garbage dies with the batch: throughput counts, pauses do not.
        "spark.driver.extraJavaOptions": f"-XX:+UseParallelGC -Dlog4j2.configurationFile={log_settings}",
    }
    if settings.master.startswith("local"):
        options |= {"spark.driver.host": "localhost", "spark.driver.bindAddress": "127.0.0.1"}
    builder = SparkSession.builder.appName("spark-job").master(settings.master)
    for name, value in (options | settings.spark_options).items():
        builder = builder.config(name, value)
    _silence_pandas_notice()
    return builder.getOrCreate()


class LazySession:
    """Spark, started when it is first needed and kept until `stop`."""

    def __init__(self, settings: JobSettings) -> None:
        self._settings = settings
        self._session: SparkSession | None = None

    def get(self) -> SparkSession:
        """Return the session, starting it where there is none. Raises as `start_session` does."""
        if self._session is None:
            self._session = start_session(self._settings)
        return self._session

    def renew(self) -> bool:
        """After a failure: keep a session that is sound, which saves the seconds of a new one; else let `get` start another JVM.

        False where there can be no other: under spark-submit the JVM is this process's parent.
        """
        if not self._is_sound():
            if not jvm.is_ours():
                return False
            log.warning("spark_discarded")
            jvm.forget()
            self._session = None
        return True

    def _is_sound(self) -> bool:
        if self._session is None:
            return not jvm.lost()  # it may have failed half way through its start
        try:
            # A query that would not stop still writes to its checkpoint.
            idle = not self._session.streams.active
            return idle and not self._session.sparkContext._jsc.sc().isStopped()
        except (Py4JError, OSError):
            return False

    def stop(self) -> None:
        """Stop Spark where it was started."""
        if self._session is not None:
            stop_session(self._session)
            self._session = None


def stop_session(session: SparkSession) -> None:
    """Stop Spark. A JVM that a signal to the whole process group has ended already needs no stopping."""
    with contextlib.suppress(Py4JError, OSError):
        session.stop()


def _silence_pandas_notice() -> None:
    """pyspark 4.2 tells at every use, in each worker too, that pandas 3 is new to it; this job's use is tested with it."""
    warnings.filterwarnings("ignore", _PANDAS_NOTICE, FutureWarning)
    os.environ["PYTHONWARNINGS"] = ",".join(
        filter(None, [os.environ.get("PYTHONWARNINGS"), f"ignore:{_PANDAS_NOTICE}:FutureWarning"])
    )
