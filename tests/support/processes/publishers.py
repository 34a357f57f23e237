"""Publishers to run and kill, and a consumer that watches what they deliver."""

import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import psycopg
from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]
from pydantic import SecretStr

from publisher.monitoring.health import ProcessHealth
from publisher.monitoring.status import Status, read_status
from publisher.relay import Relay
from service.settings import KafkaSettings, PostgresSettings, PublisherSettings, Settings
from tests.support.outbox.batches import Outbox

DEADLINE_S = 90.0


def wait_until(
    condition: Callable[[], bool], what: str | Callable[[], str], timeout_s: float = DEADLINE_S
) -> None:
    """Return once `condition` holds; fail with `what` did not happen."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout_s:g} s: {what if isinstance(what, str) else what()}")
        time.sleep(0.02)


def settings_for(
    dsn: str, bootstrap: str, options: dict[str, Any] | None = None, **publisher: Any
) -> Settings:
    """Settings with short intervals. `options` are for librdkafka."""
    quick: dict[str, Any] = {"poll_ms": 200, "idle_progress_s": 0.2, "lease_s": 3.0}
    # Built without the environment, which would win and may name the servers of the run.
    return Settings.model_construct(
        postgres=PostgresSettings(dsn=SecretStr(dsn)),
        kafka=KafkaSettings(bootstrap_servers=bootstrap, options=options or {}),
        publisher=PublisherSettings(**(quick | publisher)),
    )


class Process:
    """A real `publisher run`."""

    def __init__(self, settings: Settings, log: Path, environment: dict[str, str] | None = None) -> None:
        """`environment`: settings of other sections, by the name of their variable."""
        self._settings = settings
        self._log = log
        self._environment = environment or {}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("OUTBOX_")}
        environment["OUTBOX_POSTGRES__DSN"] = self._settings.postgres.dsn.get_secret_value()
        environment["OUTBOX_KAFKA__BOOTSTRAP_SERVERS"] = self._settings.kafka.bootstrap_servers
        for name, value in self._settings.publisher.model_dump(exclude_unset=True).items():
            text = value if isinstance(value, str) else json.dumps(value)
            environment[f"OUTBOX_PUBLISHER__{name.upper()}"] = text
        environment |= self._environment
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "publisher", "run"], env=environment, stdout=output, stderr=output
            )

    def signal(self, number: int) -> None:
        """Send a signal."""
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL, and wait for the end."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def wait(self) -> int:
        """Wait for the end and return the exit code."""
        assert self._process is not None
        return self._process.wait(DEADLINE_S)

    @property
    def pid(self) -> int:
        """Of the last start."""
        assert self._process is not None
        return self._process.pid

    def is_alive(self) -> bool:
        """Whether it runs (a stopped one counts)."""
        return self._process is not None and self._process.poll() is None

    def log(self) -> str:
        """What it printed so far."""
        return self._log.read_text("utf-8")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None and self._process.poll() is None:
            self.kill()


class InThread:
    """A relay in a thread of this process. `error` is what `run` raised."""

    def __init__(self, settings: Settings, condition: ProcessHealth | None = None) -> None:
        self.stop = threading.Event()
        self.error: Exception | None = None
        self._relay = Relay(settings, self.stop, health=condition)
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        try:
            self._relay.run()
        except Exception as error:  # noqa: BLE001 - for the test to look at
            self.error = error

    def ended(self) -> bool:
        """Whether `run` returned or raised."""
        return not self._thread.is_alive()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop.set()
        self._thread.join(DEADLINE_S)
        assert self.ended(), "the relay did not stop"


class Seen(NamedTuple):
    """One delivered event."""

    partition: int
    offset: int
    key: bytes
    value: bytes | None
    outbox_id: str
    headers: list[tuple[str, bytes | None]]


class Watcher:
    """A read_committed consumer of a topic that watches from the start on, in its own thread."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        self.seen: list[Seen] = []
        self.ends: dict[int, int] = {}
        """Partition -> the greatest end of it that was reached."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": f"watch-{topic}",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 20,
                "log_level": 0,
            }
        )
        partitions = self._consumer.list_topics(topic, timeout=30).topics[topic].partitions
        self._consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])

    def _run(self) -> None:
        while not self._stop.is_set():
            for message in self._consumer.consume(1_000, timeout=0.1):
                error = message.error()
                if error is not None and error.code() == KafkaError._PARTITION_EOF:
                    self.ends[message.partition() or 0] = message.offset() or 0
                elif error is None:
                    headers: list[Any] = list(message.headers() or [])
                    names = dict(headers)
                    self.seen.append(
                        Seen(
                            message.partition() or 0,
                            message.offset() or 0,
                            message.key() or b"",
                            message.value(),
                            names["outbox-id"].decode(),
                            headers,
                        )
                    )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        self._consumer.close()


def assert_exactly_once(outbox: Outbox, watcher: Watcher) -> None:
    """Fail unless what was seen is what was written: none missing, none twice, same bytes, in order for each key."""
    wait_until(
        lambda: len(watcher.seen) >= len(outbox.written),
        f"{len(outbox.written)} events, saw {len(watcher.seen)}",
    )
    wait_until_all_read(watcher)
    seen = Counter((event.key, event.value, event.outbox_id) for event in watcher.seen)
    assert seen == Counter(outbox.written)
    wanted, found = defaultdict(list), defaultdict(list)
    for key, _, outbox_id in outbox.written:
        wanted[key].append(outbox_id)
    for event in watcher.seen:
        found[event.key].append(event.outbox_id)
    assert found == wanted


def wait_until_all_read(watcher: Watcher) -> None:
    """Return once the watcher has read each partition to its end; fail if a transaction stays open."""

    def ends(isolation: IsolationLevel) -> dict[int, int]:
        return partition_ends(watcher.bootstrap, watcher.topic, isolation)

    wait_until(
        lambda: ends(IsolationLevel.READ_COMMITTED) == ends(IsolationLevel.READ_UNCOMMITTED),
        "the end of every open transaction",
    )
    high = ends(IsolationLevel.READ_UNCOMMITTED)
    # A position may stop short of a commit marker; the end-of-partition event does not.
    wait_until(lambda: all(watcher.ends.get(p, -1) >= end for p, end in high.items()), "reading to the end")


def partition_ends(bootstrap: str, topic: str, isolation: IsolationLevel) -> dict[int, int]:
    """Partition -> its end for readers of that level. A broker that has just started may refuse for a moment: asked again then."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    deadline = time.monotonic() + DEADLINE_S
    while True:
        try:
            described = admin.list_topics(topic, timeout=30).topics[topic].partitions
            asked = admin.list_offsets(
                {TopicPartition(topic, each): OffsetSpec.latest() for each in described},  # type: ignore[no-untyped-call]
                isolation_level=isolation,
            )
            ends = {place.partition: future.result().offset for place, future in asked.items()}
        except KafkaException:
            if time.monotonic() > deadline:
                raise
            ends = {}
        if ends:
            return ends
        time.sleep(0.1)


def status_of(dsn: str) -> Status:
    """What `publisher status` reads."""
    with psycopg.connect(dsn, autocommit=True, options="-c timezone=UTC") as connection:
        return read_status(connection)


def drained(dsn: str) -> bool:
    """Whether every lane is at the ledger's end."""
    lanes = status_of(dsn).lanes
    return bool(lanes) and all(lane.lag_batches == 0 and lane.cursor_key is None for lane in lanes)


def query(dsn: str, sql: str, *parameters: object) -> list[Any]:
    """Run one statement and return its rows, if any."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        cursor = connection.execute(sql, parameters)
        return cursor.fetchall() if cursor.description else []


def holders(dsn: str) -> dict[int, str]:
    """Lane of the newest epoch -> the process that holds it, those that are held."""
    return dict(
        query(
            dsn,
            "SELECT lane, lease_holder FROM outbox.lane WHERE epoch = (SELECT max(epoch) FROM outbox.lane)"
            " AND lease_until >= now()",
        )
    )


def spread(dsn: str) -> list[int]:
    """How many lanes of the newest epoch each process holds, ascending."""
    return sorted(Counter(holders(dsn).values()).values())
