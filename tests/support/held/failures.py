"""Failures of an attempt as a job meets them, made to happen again and again in this process."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
from confluent_kafka import Producer

from devstack.processes.port import LOOPBACK
from devstack.topics import create_topics
from service.lifecycle import fault_points
from service.lifecycle.fault_points import FaultPlan, InjectedFaultError
from service.settings import Settings
from tests.support.pipeline.feed import clean, write
from tests.support.pipeline.options import small
from tests.support.pipeline.transforms import CARTS, PAGES

NOBODY = f"{LOOPBACK}:1"
_PARTITIONS = 3
_OF_UNKNOWN_SCHEMA = b"\0\0\0\0\1which only the registry has"
_EVENTS_A_SESSION = 12


class Strike(FaultPlan):
    """Does something each time that this process passes a point."""

    def __init__(self, point: str, act: Callable[[], None]) -> None:
        super().__init__(Path("unused"))
        self._point, self._act = point, act

    def reach(self, point: str) -> None:
        """Do it, if this is the point."""
        if point == self._point:
            self._act()


@contextmanager
def striking(point: str, act: Callable[[], None]) -> Iterator[None]:
    """Within the block, `act` each time that this process passes `point`."""
    fault_points._plan = Strike(point, act)
    try:
        yield
    finally:
        fault_points._plan = None


@dataclass(frozen=True)
class Failure:
    """Of an attempt with these settings, by what happens at a point of this process."""

    settings: Settings
    point: str = "start.begins"
    act: Callable[[], None] = lambda: None


class Failures:
    """Two outboxes and their input, of JSON and of a format whose schemas are in a registry that is away; and each kind of failure."""

    def __init__(
        self, dsns: tuple[str, str], bootstrap: str, prefix: str, folder: Path, sessions: int
    ) -> None:
        """`folder`: of the job's files. `sessions`: of the JSON input, one for each batch."""
        self._dsn = dsns[0]
        topic, coded = f"{prefix}in", f"{prefix}coded-in"
        topics = (topic, coded, prefix + PAGES, prefix + CARTS)
        create_topics(bootstrap, {name: (_PARTITIONS, {}) for name in topics})
        write(bootstrap, topic, clean(1, sessions))
        _write_coded(bootstrap, coded)
        options = small(dsns[0], bootstrap, prefix, topic, folder / "cache", {})
        # A task that fails is not tried again: that costs a new worker each time.
        options["job"] |= {"master": "local[2,1]", "max_events_per_batch": _EVENTS_A_SESSION}
        options["restart"] = {"delay_s": 0}
        self.settings = Settings.model_validate(options)
        """With which nothing fails."""
        nowhere = options | {"kafka": {"bootstrap_servers": NOBODY, "request_timeout_s": 1}}
        options = small(dsns[1], bootstrap, prefix, coded, folder / "cache", {})
        options["source"]["format"] = "avro"
        options["schema_registry"] = {
            "url": f"http://{NOBODY}",
            "timeout_s": 1,
            "options": {"max.retries": 0},
        }
        # The registry is away, Kafka, Postgres in the middle of a batch; and the query fails.
        self.kinds = [
            Failure(Settings.model_validate(options)),
            Failure(Settings.model_validate(nowhere)),
            Failure(self.settings, "sink.after_copy", self._cut_postgres),
            Failure(self.settings, "query.before_action", _fail),
        ]

    def _cut_postgres(self) -> None:
        with psycopg.connect(self._dsn, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
                " WHERE datname = current_database() AND application_name = 'spark-job'"
            )


def _write_coded(bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 3})
    for partition in range(_PARTITIONS):
        producer.produce(topic, _OF_UNKNOWN_SCHEMA, "key", partition)
    assert producer.flush(60) == 0
    producer.close()


def _fail() -> None:
    raise InjectedFaultError("the query fails")
