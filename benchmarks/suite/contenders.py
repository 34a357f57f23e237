"""Contenders by name, as the commands take them: ours in its variants, and the peers of `benchmarks.peers`."""

from collections.abc import Sequence
from dataclasses import is_dataclass, replace
from pathlib import Path

from benchmarks.peers.contender import Contender
from benchmarks.pipeline.checkout import Checkout
from benchmarks.suite.ours import Ours
from benchmarks.support.servers import Servers

OURS = "ours"
_CLUSTER = "ours-cluster-"


def contenders(
    names: Sequence[str],
    servers: Servers,
    baseline: Path | None = None,
    transaction_timeout_s: int | None = None,
) -> list[Contender]:
    """Return the contenders of these names, and the checkout at `baseline` as `before`. Raises ValueError for an unknown name.

    `ours-cluster-2`: ours with the tasks on a Spark cluster of two workers of one core. `transaction_timeout_s`: of a peer's Kafka
    transactions, None: as the peer would have it.
    """
    found = [_one(name, servers, transaction_timeout_s) for name in names]
    if baseline is not None:
        found.append(Ours(servers, "before", Checkout("before", baseline.resolve())))
    return found


def _one(name: str, servers: Servers, transaction_timeout_s: int | None) -> Contender:
    if name == OURS:
        return Ours(servers)
    if name.startswith(_CLUSTER) and (workers := name.removeprefix(_CLUSTER)).isdigit():
        return Ours(servers, f"ours, {workers} Spark workers", spark_workers=int(workers))
    # Imported late: what a peer needs (a JDK, jars) is not needed for ours.
    from benchmarks.peers import registry

    found = registry.contender(name)
    if transaction_timeout_s is not None and is_dataclass(found) and hasattr(found, "transaction_timeout_s"):
        return replace(found, transaction_timeout_s=transaction_timeout_s)  # type: ignore[return-value]
    return found
