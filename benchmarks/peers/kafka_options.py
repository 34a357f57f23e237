"""Settings of the Kafka clients of all peers on the JVM, under the names of Kafka's Java clients.

Consumers fetch as this project's job does, producers compress as its publisher.
"""

from collections.abc import Mapping

CONSUMER: Mapping[str, str] = {
    "isolation.level": "read_committed",
    "max.poll.records": "5000",
    "max.partition.fetch.bytes": str(4 * 1024 * 1024),
    "fetch.max.bytes": str(64 * 1024 * 1024),
    "receive.buffer.bytes": str(1024 * 1024),
}
PRODUCER: Mapping[str, str] = {
    "compression.type": "lz4",
    "linger.ms": "5",
    "batch.size": str(256 * 1024),
    "buffer.memory": str(64 * 1024 * 1024),
}


def prefixed(prefix: str, options: Mapping[str, str]) -> dict[str, str]:
    """Return them with a prefix, as a framework passes them on to its clients."""
    return {prefix + name: value for name, value in options.items()}
