"""The one Spark action of a batch: it sends the batch's records through the tasks."""

from dataclasses import replace

import pyarrow as pa
import structlog
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from spark_job.assembly import rows
from spark_job.assembly.record_readers import DirectReader, SparkRecords
from spark_job.assembly.task import AssemblyTask
from spark_job.failures.spark_text import is_said
from spark_job.input.columns import RecordColumns
from spark_job.spark.task_secrets import without_secrets
from spark_job.stream.arrow_map import ArrowMap

log = structlog.get_logger()

# Signs of our own error, and of the source's error for a time that does not fit into 64 bits as microseconds.
_TIME_SIGNS = ("TimeMovedError", "ArithmeticException: long overflow")


class BatchAction:
    """The actions of a run. Beginning with the first batch that has a time which Spark would change, the tasks read Kafka themselves."""

    def __init__(self, columns: RecordColumns) -> None:
        self._direct = DirectReader(columns)
        self._map: ArrowMap | None = None
        self.reads_directly = False
        """Whether the tasks read Kafka themselves."""

    def run(self, frame: DataFrame, task: AssemblyTask, tasks: int) -> pa.Table:
        """Return the rows of all tasks. `frame`: the batch's records from Spark's Kafka source; the slices name the same records."""
        if not self.reads_directly:
            try:
                return self._run(frame.coalesce(tasks), replace(task, reader=SparkRecords()))
            except (PySparkException, Py4JError) as error:
                if not is_said(error, _TIME_SIGNS):
                    raise
            log.warning("tasks_read_kafka", because="a record's time is before 1901, or too large for Spark")
            self.reads_directly, self._map = True, None
        places = frame.sparkSession.range(0, len(task.slices), 1, min(tasks, len(task.slices)))
        return self._run(places, replace(task, reader=self._direct))

    def _run(self, frame: DataFrame, task: AssemblyTask) -> pa.Table:
        session = frame.sparkSession
        if self._map is None:
            self._map = ArrowMap(session, frame.columns, rows.DDL, rows.SCHEMA)
        return self._map.run(frame, without_secrets(task, session.sparkContext))
