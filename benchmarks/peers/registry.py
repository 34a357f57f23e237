"""All contenders by the name that a command line gives them."""

from collections.abc import Callable, Mapping

from benchmarks.peers.contender import Contender
from benchmarks.peers.flink_job import Flink
from benchmarks.peers.ours import Ours

_MAKERS: Mapping[str, Callable[[], Contender]] = {
    "ours": Ours,
    "flink-heap-1s": Flink,
    "flink-heap-200ms": lambda: Flink(checkpoint_ms=200),
    "flink-rocksdb-1s": lambda: Flink("rocksdb"),
    "flink-rocksdb-200ms": lambda: Flink("rocksdb", checkpoint_ms=200),
}


def names() -> list[str]:
    """Of all contenders."""
    return list(_MAKERS)


def contender(name: str) -> Contender:
    """Return the contender of this name. Raises ValueError with the known ones."""
    try:
        return _MAKERS[name]()
    except KeyError:
        raise ValueError(f"there is no contender {name!r}; there are {', '.join(_MAKERS)}") from None
