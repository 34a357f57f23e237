"""How the driver's JVM hands the results of batches to this process: over TCP, while Python workers keep their Unix sockets.

Spark makes a Unix socket for each result, and the JVM keeps its path until it ends (`File.deleteOnExit`): gigabytes a month at some batches
a second. Spark chooses once how it serves results, by the option's value at the first result; it chooses how it reaches a worker when the
worker starts. So the first result is an empty one, served while the option is off.
"""

from typing import Any

from pyspark.serializers import CPickleSerializer
from pyspark.sql import SparkSession
from pyspark.util import _load_from_socket

UNIX_SOCKETS = "spark.python.unix.domain.socket.enabled"


def serve_results_over_tcp(session: SparkSession) -> None:
    """Let Spark serve results over TCP. Call before the first result is collected."""
    virtual_machine: Any = session.sparkContext._jvm
    options = session.sparkContext._jsc.sc().conf()
    before = options.get(UNIX_SOCKETS, "false")
    options.set(UNIX_SOCKETS, "false")
    try:
        nothing = virtual_machine.scala.collection.Iterator.empty()
        served = virtual_machine.org.apache.spark.api.python.PythonRDD.serveIterator(nothing, "nothing")
    finally:
        options.set(UNIX_SOCKETS, before)
    with _load_from_socket(tuple(served)[:2], CPickleSerializer()) as found:
        assert not list(found)
