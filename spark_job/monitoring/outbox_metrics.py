"""What is open, in Postgres and in Kafka's input topics, as Prometheus metrics."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import psycopg
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from db.statements import statement
from spark_job.monitoring.input_lag import Ends
from spark_job.monitoring.metrics import LETTER_REASONS
from spark_job.monitoring.status import open_work
from spark_job.recovery import position
from spark_job.recovery.position import Position

COUNT_LIMIT = 10_000
"""Dead letters are counted up to this many for each reason: what a look costs does not grow with them."""


@dataclass(frozen=True, slots=True)
class _Look:
    """What Postgres said at one moment of the monotonic clock, and Kafka after it.

    `lag`: (topic, partition, offsets), of the look before until Kafka has answered; empty while it does not.
    """

    at: float
    open: Mapping[str, int]
    letters: Mapping[str, int]
    lag: list[tuple[str, int, int]]


class OutboxMetrics(Collector):
    """The last look. `look` and `collect` may be called by different threads."""

    def __init__(self, max_age_s: float, read_lag: Callable[[Ends], list[tuple[str, int, int]]]) -> None:
        """An older look than `max_age_s` counts as none. `read_lag` asks Kafka how far the input is beyond the ledger's ends."""
        self._max_age_s = max_age_s
        self._read_lag = read_lag
        self._lock = threading.Lock()
        self._last: _Look | None = None

    def look(self, connection: psycopg.Connection[Any]) -> None:
        """Read anew, for some seconds at the most. Raises psycopg.Error."""
        with connection.transaction():
            connection.execute(statement("spark_job", "metrics_snapshot"))
            connection.execute(statement("spark_job", "metrics_timeout"))
            at = position.read(connection)
            letters = connection.execute(
                statement("spark_job", "metrics_letters"),
                {"reasons": list(LETTER_REASONS), "count_limit": COUNT_LIMIT},
            ).fetchall()
        # Told before Kafka is asked: a slow Kafka makes no look at Postgres old.
        with self._lock:
            lag = self._last.lag if self._last else []
            self._last = looked = _Look(time.monotonic(), _open(at), dict(letters), lag)
        if at is not None:
            lag = self._read_lag(Ends(at.generation.topics, at.end))
            with self._lock:
                self._last = replace(looked, lag=lag)

    def lost(self) -> None:
        """Postgres does not answer: nothing is known of it until the next look."""
        with self._lock:
            self._last = None

    def describe(self) -> list[Metric]:
        """Name the metrics without values."""
        return list(_families().values())

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics; only that Postgres is away while it is."""
        with self._lock:
            look = self._last
        is_known = look is not None and time.monotonic() - look.at <= self._max_age_s
        found = _families()
        found["outbox_postgres_up"].add_metric([], int(is_known))
        if look is None or not is_known:
            yield found["outbox_postgres_up"]
            return
        for name, value in look.open.items():
            found[f"outbox_{name}"].add_metric([], value)
        for reason, count in look.letters.items():
            found["outbox_open_dead_letters"].add_metric([reason], count)
        for topic, partition, offsets in look.lag:
            found["outbox_input_lag_offsets"].add_metric([topic, str(partition)], offsets)
        yield from found.values()


def _open(at: Position | None) -> dict[str, int]:
    largest = max((each.n_bytes for each in at.open.values()), default=0) if at else 0
    return open_work(at) | {"largest_partition_bytes": largest}


def _families() -> dict[str, GaugeMetricFamily]:
    texts: dict[str, tuple[str, list[str]]] = {
        "outbox_postgres_up": ("Whether the last look at Postgres went well.", []),
        "outbox_open_sessions": ("Sessions without an end yet.", []),
        "outbox_open_events": ("Input events of these.", []),
        "outbox_open_bytes": ("Bytes of these events.", []),
        "outbox_largest_partition_bytes": (
            "Bytes of the open sessions' events in the input partition that has the most; [session] max_open_bytes is the limit.",
            [],
        ),
        "outbox_open_dead_letters": (
            f"Dead letters nobody has dealt with, counted up to {COUNT_LIMIT}.",
            ["reason"],
        ),
        "outbox_input_lag_offsets": (
            "Offsets of an input partition that the ledger has not passed; left out while Kafka does not answer.",
            ["topic", "partition"],
        ),
    }
    return {name: GaugeMetricFamily(name, text, labels=labels) for name, (text, labels) in texts.items()}
