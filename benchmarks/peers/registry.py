"""All contenders by the name that a command line gives them: ours in its variants, another checkout of ours, and the peers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.peers.checkout import Checkout
from benchmarks.peers.contender import Contender
from benchmarks.peers.flink_job import Flink
from benchmarks.peers.ours import Ours
from benchmarks.peers.quix import Quix
from benchmarks.peers.spark_peer import SparkStateful
from benchmarks.peers.streams_job import KafkaStreams

OURS = "ours"
_CLUSTER = "ours-cluster-"
_LATENCIES = ("balanced", "cheapest")
"""Values of `[job] latency`; `ours` has the lowest."""
_PEERS: Mapping[str, Callable[[], Contender]] = {
    "flink-heap-1s": Flink,
    "flink-heap-200ms": lambda: Flink(checkpoint_ms=200),
    "flink-rocksdb-1s": lambda: Flink("rocksdb"),
    "flink-rocksdb-200ms": lambda: Flink("rocksdb", checkpoint_ms=200),
    "streams-rocksdb": KafkaStreams,
    "streams-memory": lambda: KafkaStreams("memory"),
    "streams-rocksdb-1s": lambda: KafkaStreams(commit_ms=1_000),
    "streams-memory-1s": lambda: KafkaStreams("memory", commit_ms=1_000),
    "spark-stateful": SparkStateful,
    "spark-stateful-rocksdb": lambda: SparkStateful("rocksdb"),
    "quix": Quix,
}


def names() -> list[str]:
    """Of all contenders; `ours-cluster-2` is ours with the tasks on two Spark workers of one core, and may have another number."""
    return [OURS, *(f"{OURS}-{latency}" for latency in _LATENCIES), f"{_CLUSTER}2", *_PEERS]


def contenders(
    chosen: Sequence[str],
    *,
    baseline: Path | None = None,
    settings: Mapping[str, str] | None = None,
    transaction_timeout_s: int | None = None,
) -> list[Contender]:
    """Return the contenders of these names, and the checkout at `baseline` as `before`. Raises ValueError for an unknown name.

    `settings`: further ones of ours, environment names without OUTBOX_. `transaction_timeout_s`: how long a Kafka transaction may be
    open, None: as each would have it.
    """
    own = dict(settings or {})
    if transaction_timeout_s is not None:
        own |= {"PUBLISHER__TRANSACTION_TIMEOUT_MS": str(1000 * transaction_timeout_s)}
    found: list[Contender] = []
    for name in chosen:
        if name == OURS:
            found.append(Ours(own))
        elif name.startswith(_CLUSTER) and (workers := name.removeprefix(_CLUSTER)).isdigit():
            found.append(Ours(own, workers=int(workers)))
        elif (latency := name.removeprefix(f"{OURS}-")) in _LATENCIES:
            found.append(Ours(own, latency=latency))
        else:
            found.append(_peer(name, transaction_timeout_s))
    if baseline is not None:
        found.append(Ours(own, Checkout("before", baseline.resolve())))
    return found


def _peer(name: str, transaction_timeout_s: int | None) -> Contender:
    if name not in _PEERS:
        raise ValueError(f"there is no contender {name!r}; there are {', '.join(names())}")
    found: Any = _PEERS[name]()
    if transaction_timeout_s is not None and hasattr(found, "transaction_timeout_s"):
        found = replace(found, transaction_timeout_s=transaction_timeout_s)
    contender: Contender = found
    return contender
