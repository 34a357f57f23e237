"""Open work as Prometheus metrics: what the outbox holds, and what the input topics hold beyond it."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import psycopg

from db.connection import snapshot
from db.polled_gauges import PolledGauges
from db.statements import queries
from service.observability.gauges import Gauges, Sample
from spark_job.ledger import position
from spark_job.ledger.position import InputPosition
from spark_job.monitoring.metrics import LETTER_REASONS
from spark_job.status.input_lag import Ends
from spark_job.status.job_status import open_work

_LETTERS = queries("spark_job", "letters")

COUNT_LIMIT = 10_000
"""Dead letters are counted up to this many for each reason, so that the cost of a poll does not grow with them."""

_GAUGES: Gauges = {
    "outbox_open_sessions": ("Sessions without an end yet.", ()),
    "outbox_open_events": ("Input events of the sessions without an end yet.", ()),
    "outbox_open_bytes": ("Bytes of the keys and event values of the sessions without an end yet.", ()),
    "outbox_largest_partition_bytes": (
        "Bytes of the open sessions' keys and events in the input partition that has the most; [session] max_open_bytes is the limit.",
        (),
    ),
    "outbox_open_dead_letters": (
        f"Open dead letters, counted up to {COUNT_LIMIT} for each reason.",
        ("reason",),
    ),
    "outbox_input_lag_offsets": (
        "Offsets of an input partition that the ledger has not passed; left out while Kafka does not answer.",
        ("topic", "partition"),
    ),
}


class JobOutboxMetrics(PolledGauges):
    """The results of the last poll."""

    def __init__(self, max_age_s: float, read_lag: Callable[[Ends], list[tuple[str, int, int]]]) -> None:
        """`read_lag` asks Kafka how far the input is beyond the ledger's ends: (topic, partition, offsets), empty without an answer."""
        super().__init__(_GAUGES, max_age_s)
        self._read_lag = read_lag
        self._lag: list[Sample] = []

    def poll(self, connection: psycopg.Connection[Any]) -> None:
        """Read again; each query may take 5 s. Raises psycopg.Error."""
        with snapshot(connection):
            connection.execute("SET LOCAL statement_timeout = '5s'")
            current = position.read(connection)
            letters = connection.execute(
                _LETTERS["bounded_open_counts"],
                {"reasons": list(LETTER_REASONS), "count_limit": COUNT_LIMIT},
            ).fetchall()
        at, found = time.monotonic(), _samples(current, letters)
        # Published before Kafka is asked, with the lag of the poll before, so that a slow Kafka does not delay Postgres' values.
        self.keep(at, [*found, *self._lag])
        if current is not None:
            self._lag = [
                ("outbox_input_lag_offsets", (topic, str(partition)), offsets)
                for topic, partition, offsets in self._read_lag(Ends(current.generation.topics, current.end))
            ]
            self.keep(at, [*found, *self._lag])

    def lost(self) -> None:
        """Note that Postgres does not answer: its values are unknown until the next poll."""
        self._lag = []
        super().lost()


def _samples(current: InputPosition | None, letters: Sequence[tuple[str, int]]) -> list[Sample]:
    largest = max((each.n_bytes for each in current.open.values()), default=0) if current else 0
    open_now = open_work(current) | {"largest_partition_bytes": largest}
    return [
        *((f"outbox_{name}", (), value) for name, value in open_now.items()),
        *(("outbox_open_dead_letters", (reason,), count) for reason, count in letters),
    ]
