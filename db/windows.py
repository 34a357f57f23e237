"""Cuts batches into windows, one for each statement: a statement with constant batch ids locks only the partitions of its window.

`session_output` gains partitions for as long as the outbox lives, and Postgres locks every partition in a plan, with its two indexes. So
every statement on it gets the first and the last batch as values that are known when it is planned. `prepare=False` ensures that: a
prepared statement may get a generic plan, which names every partition. A longer range is read window by window, each in a separate
transaction.
"""

from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

import psycopg

from db.statements import queries

_PARTITIONS = queries("db", "partitions")

BATCHES = 100_000
"""The batches in a window of `cut`: as in ten partitions of the smallest size. `cut` reads no partitions."""
_PARTITIONS_AT_ONCE = 16


class Window(NamedTuple):
    """Batches `first` to `last`, both inclusive."""

    first: int
    last: int

    @property
    def bounds(self) -> dict[str, int]:
        """The parameters that bound a statement to this window."""
        return {"from_batch": self.first, "to_batch": self.last}


def cut(first: int, last: int) -> Iterator[Window]:
    """Cut a range of batches at multiples of BATCHES, where partitions may end. Oldest first."""
    while first <= last:
        end = min(last, first // BATCHES * BATCHES + BATCHES - 1)
        yield Window(first, end)
        first = end + 1


def kept(connection: psycopg.Connection[Any], first: int = 0, last: int | None = None) -> list[Window]:
    """Return windows over the kept partitions with batches from `first` to `last`: at most 16 partitions in each window, oldest first.

    Raises psycopg.Error.
    """
    partitions = connection.execute(_PARTITIONS["kept"], {"from_batch": first, "to_batch": last}).fetchall()
    return [
        Window(part[0][0], part[-1][1])
        for part in (
            partitions[n : n + _PARTITIONS_AT_ONCE] for n in range(0, len(partitions), _PARTITIONS_AT_ONCE)
        )
    ]


def holding(connection: psycopg.Connection[Any], batch_ids: Collection[int]) -> list[Window]:
    """Return the windows that contain any of these batches, oldest first. Raises psycopg.Error."""
    if not batch_ids:
        return []
    windows = kept(connection, min(batch_ids), max(batch_ids))
    return [w for w in windows if any(w.first <= batch_id <= w.last for batch_id in batch_ids)]


class Detached(NamedTuple):
    """A partition that somebody has detached by hand, or is detaching: `pending`. No window contains it. `size`: bytes."""

    name: str
    pending: bool
    size: int


def detached(connection: psycopg.Connection[Any]) -> list[Detached]:
    """Return the partitions that were detached and not dropped. Raises psycopg.Error."""
    return [Detached(*row) for row in connection.execute(_PARTITIONS["detached"]).fetchall()]
