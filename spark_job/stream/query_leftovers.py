"""Release the threads, descriptors and memory that py4j and Spark's Kafka source would keep of each ended query until the JVM ends.

- py4j keeps the connection of the query's thread, and with it a thread and a descriptor of this process. It closes idle connections by
  itself, but not if each Python thread has its own thread in the JVM, as in the job.
- The Kafka source keeps a consumer for each partition for five more minutes, and the consumer's options until the JVM ends. Both are
  stored under a name that only this query has, so that the next one cannot use them. Executors on other machines keep theirs, too: this
  module cannot reach them.
"""

from typing import Any

import structlog
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext
from pyspark.sql import SparkSession

log = structlog.get_logger()

_CONSUMERS = "org.apache.spark.sql.kafka010.consumer.KafkaDataConsumer$"


def release_leftovers(session: SparkSession) -> None:
    """Release the leftovers of all ended queries. Call while no query runs. Never raises: at worst, they remain."""
    try:
        _close_connections()
        if str(session.sparkContext.master).startswith("local"):
            _close_consumers(session)
    except Py4JJavaError as error:
        # Another version of Spark may name these fields differently. Then memory stays in use, but no batch is lost.
        log.warning("query_remains", because=str(error.java_exception))
    except (Py4JError, OSError):
        pass  # the JVM is gone, with all that it kept


def _close_connections() -> None:
    """Close connections that no call uses. If their thread calls again, py4j opens another one."""
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
