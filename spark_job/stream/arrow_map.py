"""`DataFrame.mapInArrow(function).toArrow()` for a series of frames that have equal columns and give results with equal columns.

At each call pyspark looks classes up by name in the JVM, which searches all jars; copies Python's environment there; makes a Java object of
each column; parses both schemas; and reads source files to name the caller. This module does once what does not change between two batches,
and the rest as pyspark does it.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from py4j.java_collections import ListConverter, MapConverter
from pyspark.errors.exceptions.captured import unwrap_spark_exception
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.classic.column import _to_seq
from pyspark.sql.pandas.serializers import ArrowCollectSerializer
from pyspark.sql.types import _parse_datatype_string
from pyspark.util import PythonEvalType, _load_from_socket

Function = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]

_FUNCTION = "org.apache.spark.api.python.SimplePythonFunction"
_UDF = "org.apache.spark.sql.execution.python.UserDefinedPythonFunction"


class ArrowMap:
    """The calls in one JVM, for one kind of frame."""

    def __init__(self, session: SparkSession, columns: Sequence[str], ddl: str, schema: pa.Schema) -> None:
        """`columns`: the frames'. `ddl` and `schema`: the type of the functions' results, as Spark and as Arrow describe it."""
        context: Any = session.sparkContext
        machine, client = context._jvm, context._gateway._gateway_client
        self._pickle: Any = CloudPickleSerializer().dumps
        self._serializer = ArrowCollectSerializer()  # type: ignore[no-untyped-call]
        self._schema = schema
        self._returns = _parse_datatype_string(ddl)
        self._java_returns = session._jsparkSession.parseDataType(self._returns.json())
        self._function, self._udf = getattr(machine, _FUNCTION), getattr(machine, _UDF)
        self._worker = (
            MapConverter().convert(context.environment, client),
            ListConverter().convert(context._python_includes, client),
            context.pythonExec,
            context.pythonVer,
            ListConverter().convert([], client),  # no broadcast variables
            context._javaAccumulator,
        )
        self._columns = _to_seq(context, [F.col(f"`{name}`")._jc for name in columns])

    def run(self, frame: DataFrame, function: Function) -> pa.Table:
        """Run the action. Raises what Spark raises."""
        python = self._function(bytearray(self._pickle((function, self._returns))), *self._worker)
        udf = self._udf(
            type(function).__name__,
            python,
            self._java_returns,
            PythonEvalType.SQL_MAP_ARROW_ITER_UDF,
            True,
        )
        mapped = frame._jdf.mapInArrow(udf.apply(self._columns), False, None)
        port, secret, server = mapped.collectAsArrowToPython()
        try:
            with _load_from_socket((port, secret), self._serializer) as received:
                *batches, order = received
        finally:
            with unwrap_spark_exception():
                server.getResult()  # raises what failed
        if not batches:
            return self._schema.empty_table()
        return pa.Table.from_batches([batches[number] for number in order]).cast(self._schema)
