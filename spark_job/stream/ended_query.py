"""Release what py4j and Spark's Kafka source keep of each query after its end, for as long as the JVM lives.

- py4j keeps the connection of the query's thread, and with it a thread and a descriptor of this process. It closes idle connections by
  itself, but not if each of Python's threads has its own in the JVM, as in the job.
- The Kafka source keeps a consumer for each partition five minutes longer, and its options for ever: it looks for both by a name that the
  next query does not have. Executors on other machines do so, too; nothing here reaches them.
"""

from typing import Any

import structlog
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext
from pyspark.sql import SparkSession

log = structlog.get_logger()

_CONSUMERS = "org.apache.spark.sql.kafka010.consumer.KafkaDataConsumer$"


def let_go(session: SparkSession) -> None:
    """Call while no query runs."""
    try:
        _close_connections()
        if str(session.sparkContext.master).startswith("local"):
            _close_consumers(session)
    except Py4JJavaError as error:
        # Another version of Spark may have other names: that costs memory, but no batch.
        log.warning("query_remains", because=str(error.java_exception))
    except (Py4JError, OSError):
        pass  # the JVM is gone, and what it kept with it


def _close_connections() -> None:
    """Close connections that no call uses: if their thread calls again, py4j opens another one."""
    gateway: Any = SparkContext._gateway
    gateway.java_gateway_server.getCallbackClient().periodicCleanup()


def _close_consumers(session: SparkSession) -> None:
    loader = session._jsparkSession.sharedState().jarClassLoader()
    consumers = loader.loadClass(_CONSUMERS)
    pool = _private(consumers, "consumerPool")
    pool.reset()
    _private(consumers, "fetchedDataPool").reset()
    factory = _private(pool.getClass(), "objectFactory", pool)
    _private(factory.getClass(), "keyToKafkaParams", factory).clear()


def _private(java_class: Any, name: str, owner: Any = None) -> Any:
    field = java_class.getDeclaredField(name)
    field.setAccessible(True)
    return field.get(owner)
