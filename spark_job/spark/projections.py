"""How Spark turns Kafka's records into rows: by code that it compiles, or by interpretation.

It makes the projection anew for each partition that has new records, in each batch. Generating the code takes some milliseconds, even
where it was compiled before; interpretation takes half a microsecond more for each record. So few records of a partition are interpreted.
"""

from pyspark.sql import DataFrame

_MODE = "spark.sql.codegen.factoryMode"
_COMPILED, _INTERPRETED = "FALLBACK", "NO_CODEGEN"
_FEW_RECORDS = 4_000


class Projections:
    """Of one query. Where the user has chosen (`[job] spark_options`), nothing is changed."""

    def __init__(self, *, chosen_by_user: bool) -> None:
        self._fixed = chosen_by_user
        self._mode = _COMPILED

    @classmethod
    def of(cls, spark_options: dict[str, str]) -> "Projections":
        """Read the settings."""
        return cls(chosen_by_user=_MODE in spark_options)

    def suit(self, frame: DataFrame, records: int, partitions: int) -> None:
        """Choose for the batch `frame`, which has so many records from so many partitions."""
        mode = _INTERPRETED if records < _FEW_RECORDS * partitions else _COMPILED
        if mode != self._mode and not self._fixed:
            # The batches of a query share a session of their own.
            frame.sparkSession.conf.set(_MODE, mode)
            self._mode = mode
