"""Options for one batch: how Spark turns Kafka's records into rows, and how it cuts these for the Python workers.

**Projection: by code that Spark compiles, or by interpretation.** Spark builds the projection again for each partition with new records,
in each batch. Generating the code takes some milliseconds, even if it was compiled before; interpretation takes half a microsecond more
for each record. So a partition with few records is interpreted.

**Arrow batches: by count, or by bytes.** With a limit in bytes, Spark measures the Arrow batch before each row, which takes a quarter of
the JVM's time if records are small. So small records are counted, and only larger ones are measured. The size is that of the previous
batch's records: if larger records follow, 1,024 of the largest that Kafka accepts by default (1 MB, uncompressed) still fit into an Arrow
batch (2 GB).
"""

from collections.abc import Container

from pyspark.sql import DataFrame

_MODE = "spark.sql.codegen.factoryMode"
_COMPILED, _INTERPRETED = "FALLBACK", "NO_CODEGEN"
_FEW_RECORDS = 4_000

_MAX_RECORDS = "spark.sql.execution.arrow.maxRecordsPerBatch"
_MAX_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
_COUNTED = {
    _MAX_RECORDS: "1024",
    _MAX_BYTES: "2147483647",
}  # the greatest value means that nothing is measured
_WEIGHED = {_MAX_RECORDS: "100000", _MAX_BYTES: "67108864"}
_SMALL_BYTES = 4_096


class ProjectionOptions:
    """The options of one query. Those that the user has set are not changed."""

    def __init__(self, chosen_by_user: Container[str] = ()) -> None:
        """`chosen_by_user`: names of options, by `[job] spark_options` or spark-submit."""
        self._chosen = chosen_by_user
        self._told: dict[str, str] = {}

    def suit(
        self, frame: DataFrame, records: int, partitions: int, mean_event_bytes: float | None = None
    ) -> None:
        """Set the options for the batch `frame`. `partitions`: those with records, by number; `mean_event_bytes`: the previous batch's."""
        small = mean_event_bytes is not None and mean_event_bytes <= _SMALL_BYTES
        options = {
            _MODE: _INTERPRETED if records < _FEW_RECORDS * partitions else _COMPILED,
            **(_COUNTED if small else _WEIGHED),
        }
        for name, value in options.items():
            if self._told.get(name) != value and name not in self._chosen:
                # The batches of a query share a session that nothing else uses.
                frame.sparkSession.conf.set(name, value)
                self._told[name] = value
