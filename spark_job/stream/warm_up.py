"""Send made-up records through the steps of real ones, so that real ones do not wait for code to load.

Executors import this module, so it may import only what requirements/executor.txt installs.
"""

from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from spark_job.assembly import rows

_RECORDS = 20_000
_STREAM_S = 60


def warm_up(spark: SparkSession, tasks: int) -> None:
    """Start the Python workers, load what they import, and let the JVM compile. Raises what Spark raises."""
    wide = tasks or spark.sparkContext.defaultParallelism
    frame = spark.range(0, _RECORDS, 1, 2 * wide).select(
        F.lit(0).alias("source"),
        F.col("id").alias("offset"),
        F.col("id").alias("ts"),
        F.lit(b'{"event_type":"entry_event","session_key":"warm-up"}').alias("value"),
    )
    frame.coalesce(wide).mapInArrow(_assemble, rows.DDL).toArrow()


def load_streaming(spark: SparkSession, checkpoint: str) -> None:
    """Run a streaming query for one batch, only to load Spark's classes for streaming."""
    counted = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 100).load()
    query = counted.writeStream.foreachBatch(_count).option("checkpointLocation", checkpoint)
    query.trigger(availableNow=True).start().awaitTermination(_STREAM_S)


def _count(frame: DataFrame, _number: int) -> None:
    frame.count()


def _assemble(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import spark_job.assembly.task  # noqa: F401 - to have it imported in the worker
    from spark_job.sessions.assembler import assemble
    from spark_job.sessions.settings import AssemblySettings
    from spark_job.sessions.state.open_state import OpenState

    out = rows.RowBatches()
    for batch in batches:
        columns = pa.Table.from_batches([batch]).drop_columns(["source"])
        assembled = assemble(OpenState.empty(), columns, AssemblySettings())
        yield from out.add({"kind": rows.PARTITION, "source": 0, "detail": str(len(assembled.letters))})
    yield from out.rest()
