"""Contenders by name, as the commands take them: ours in its variants, and the peers of `benchmarks.peers`."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.peers.contender import Contender
from benchmarks.pipeline.checkout import Checkout
from benchmarks.suite.load.ours import Clustered, ours
from benchmarks.support.servers import Servers

OURS = "ours"
_CLUSTER = "ours-cluster-"


def contenders(
    names: Sequence[str],
    servers: Servers,
    *,
    baseline: Path | None = None,
    settings: Mapping[str, str] | None = None,
    transaction_timeout_s: int | None = None,
) -> list[Contender]:
    """Return the contenders of these names, and the checkout at `baseline` as `before`. Raises ValueError for an unknown name.

    `ours-cluster-2`: ours with the tasks on a Spark cluster of two workers of one core. `settings`: further ones of ours, environment
    names without OUTBOX_. `transaction_timeout_s`: how long a Kafka transaction may be open, None: as each would have it.
    """
    own = dict(settings or {})
    if transaction_timeout_s is not None:
        own |= {"PUBLISHER__TRANSACTION_TIMEOUT_MS": str(1000 * transaction_timeout_s)}
    found: list[Contender] = []
    for name in names:
        if name == OURS:
            found.append(ours(own))
        elif name.startswith(_CLUSTER) and (workers := name.removeprefix(_CLUSTER)).isdigit():
            found.append(Clustered(servers, int(workers), own))
        else:
            found.append(_peer(name, transaction_timeout_s))
    if baseline is not None:
        before = Checkout("before", baseline.resolve())
        found.append(ours(own, name=before.name, checkout=before))
    return found


def _peer(name: str, transaction_timeout_s: int | None) -> Contender:
    # Imported late: what a peer needs (a JDK, jars) is not needed for ours.
    from benchmarks.peers import registry

    found: Any = registry.contender(name)
    if transaction_timeout_s is not None and hasattr(found, "transaction_timeout_s"):
        found = replace(found, transaction_timeout_s=transaction_timeout_s)
    contender: Contender = found
    return contender
