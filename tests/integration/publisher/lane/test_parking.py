"""A record that Kafka refuses for itself is put aside with its whole row; the lane continues."""

import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from contract.cursor import Cursor
from db.statements import queries
from devstack.kafka import KafkaServer
from devstack.topics import create_topics
from publisher.lane import lane
from publisher.monitoring import metrics
from publisher.outbox import parked as parked_rows
from publisher.outbox.lease import Lease
from publisher.protocol.records import OutputRecord, RowKey, batch_size
from service.settings import Settings
from tests.support.outbox.batches import TOPIC_ID, Outbox, Session, simple
from tests.support.outbox.deliveries import assert_exactly_once, drained
from tests.support.outbox.restoring import progress_topic
from tests.support.processes.publishers import RelayThread, settings_for
from tests.support.queries import query
from tests.support.servers.topic_limits import set_limit
from tests.support.waiting import wait_until
from tests.support.watching import Watcher

_LANES = queries("publisher", "lanes")
_PARKED = queries("publisher", "parked")

LIMIT = 2_000


@pytest.fixture
def topic(kafka: KafkaServer, topic_prefix: str) -> str:
    """An output topic that takes batches of at most LIMIT bytes."""
    name = f"{topic_prefix}small"
    create_topics(kafka.bootstrap_servers, {name: (1, {"max.message.bytes": str(LIMIT)})})
    return name


def value_for(size: int, topic: str, key: str, end: int, index: int) -> bytes:
    """A value that makes its record, alone in a batch, `size` bytes."""
    headers: list[tuple[str, str | bytes | None]] = [("outbox-id", f"{TOPIC_ID}/0/{end}/{index}".encode())]
    for length in range(size):
        if batch_size(OutputRecord(topic, b"x" * length, key.encode(), -1, 0, headers)) == size:
            return b"x" * length
    raise AssertionError(f"no value makes {size} bytes")


def parked(dsn: str) -> list[tuple[str, int, str]]:
    """(session_key, batch_id, reason) of what is parked."""
    return query(
        dsn, "SELECT session_key, batch_id, reason FROM outbox.parked ORDER BY batch_id, session_key"
    )


@pytest.mark.guarantee(67)
def test_a_record_of_exactly_the_topic_s_limit_goes_out_and_one_byte_more_is_parked(
    outbox: Outbox, settings: Settings, watcher: Watcher
) -> None:
    outbox.batch(
        {
            "a": [Session([b"1", value_for(LIMIT, outbox.topic, "a", 10, 1)], 10)],
            "c": [Session([b"2"] * 100, 30)],
        }
    )
    written = list(outbox.written)
    outbox.batch({"a": [Session([b"3", value_for(LIMIT + 1, outbox.topic, "a", 20, 1)], 20)]})
    outbox.written = written
    outbox.batch({"a": [Session([b"4"], 40)]})
    with RelayThread(settings):
        wait_until(lambda: drained(outbox.dsn), "everything but the row that is too large")
    assert_exactly_once(outbox, watcher)
    assert parked(outbox.dsn) == [("a", 2, "too_large")]


@pytest.mark.guarantee(67)
def test_what_only_the_broker_can_refuse_is_found_and_parked(
    outbox: Outbox, settings: Settings, watcher: Watcher
) -> None:
    later = int(time.time() * 1000) + 7 * 86_400_000
    outbox.batch({f"k{n}": [Session([b"1", b"2"], 1 + n)] for n in range(4)})
    written = list(outbox.written)
    outbox.batch({"bad": [Session([b"x", b"y"], 20, timestamps_ms=[None, later])]})
    outbox.batch({"worse": [Session([b"z"], 21, timestamps_ms=[later])]})
    outbox.written = written
    outbox.batch({f"k{n}": [Session([b"3", b"4"], 30 + n)] for n in range(4)})
    counted = metrics.REGISTRY.get_sample_value
    parked_before = counted("outbox_rows_parked_total", {"reason": "invalid"}) or 0.0
    refused_before = counted("outbox_transactions_total", {"outcome": "refused"}) or 0.0
    with RelayThread(settings):
        wait_until(lambda: drained(outbox.dsn), "everything but the rows that Kafka refuses")
    assert_exactly_once(outbox, watcher)
    assert (counted("outbox_rows_parked_total", {"reason": "invalid"}) or 0.0) - parked_before == 2
    assert (counted("outbox_transactions_total", {"outcome": "refused"}) or 0.0) - refused_before >= 2
    assert parked(outbox.dsn) == [("bad", 2, "invalid"), ("worse", 3, "invalid")]


def test_a_record_refused_while_others_still_wait_to_be_sent_is_found(
    outbox: Outbox, kafka: KafkaServer, watcher: Watcher
) -> None:
    settings = settings_for(outbox.dsn, kafka.bootstrap_servers, {"queue.buffering.max.messages": 50})
    later = int(time.time() * 1000) + 7 * 86_400_000
    outbox.batch({f"k{n:03}": [Session([b"1"] * 20, 1 + n)] for n in range(60)})
    written = list(outbox.written)
    outbox.batch({"a": [Session([b"x"], 200, timestamps_ms=[later])]})
    outbox.written = written
    outbox.batch({f"k{n:03}": [Session([b"2"] * 20, 300 + n)] for n in range(60)})
    with RelayThread(settings):
        wait_until(lambda: drained(outbox.dsn), "everything but the row that Kafka refuses")
    assert_exactly_once(outbox, watcher)
    assert parked(outbox.dsn) == [("a", 2, "invalid")]


def test_a_row_for_a_progress_topic_or_for_one_that_is_not_allowed_is_parked_and_the_lane_continues(
    outbox: Outbox, settings: Settings, watcher: Watcher
) -> None:
    """Whoever writes rows must not write with the publisher's rights where these decide what is delivered."""
    publisher = settings.publisher.model_copy(update={"output_topics": (outbox.topic,)})
    settings = settings.model_copy(update={"publisher": publisher})
    outbox.batch({"a": [Session([b"1"], 10)]})
    written = list(outbox.written)
    hostile = progress_topic(outbox.dsn)
    outbox.batch({"b": [Session([b"2", b"{}"], 20, topics=[outbox.topic, hostile])]})
    outbox.batch({"c": [Session([b"3"], 30, topics=["elsewhere"])]})
    outbox.written = written
    outbox.batch({"a": [Session([b"4"], 40)]})
    with RelayThread(settings):
        wait_until(lambda: drained(outbox.dsn), "everything but the rows for other topics")
    assert_exactly_once(outbox, watcher)
    assert parked(outbox.dsn) == [("b", 2, "invalid"), ("c", 3, "invalid")]
    details = query(outbox.dsn, "SELECT detail FROM outbox.parked ORDER BY batch_id")
    assert hostile in details[0][0]
    assert "[publisher] output_topics" in details[1][0]


def test_a_row_for_the_progress_topic_of_another_outbox_under_its_own_name_is_parked(
    outbox: Outbox, settings: Settings, kafka: KafkaServer, topic_prefix: str, watcher: Watcher
) -> None:
    hostile = f"{topic_prefix}positions-{uuid4()}"
    create_topics(kafka.bootstrap_servers, {hostile: (1, {"cleanup.policy": "compact"})})
    outbox.batch({"a": [Session([b"1"], 10)]})
    written = list(outbox.written)
    outbox.batch({"b": [Session([b"{}"], 20, topics=[hostile])]})
    outbox.written = written
    with RelayThread(settings):
        wait_until(lambda: drained(outbox.dsn), "everything but the row for the other outbox")
    assert_exactly_once(outbox, watcher)
    assert parked(outbox.dsn) == [("b", 2, "invalid")]


@pytest.mark.guarantee(71)
def test_only_the_lane_s_holder_parks_and_its_role_may(outbox: Outbox) -> None:
    with psycopg.connect(outbox.dsn, autocommit=True) as connection:
        connection.execute("INSERT INTO outbox.lane (epoch, lane) VALUES (1, 0)")
        connection.execute("SET ROLE outbox_publisher")
        held = Lease.claim(connection, 1, 0, "first", 0.0)
        assert held is not None
        row = {"session_key": "k", "reason": "invalid", "detail": "x"}
        assert connection.execute(_PARKED["park"], held.parameters | row | {"batch_id": 1}).rowcount == 1
        # Each tenure has a token of its own, the same holder's too.
        assert Lease.claim(connection, 1, 0, "first", 30.0) is not None
        assert connection.execute(_PARKED["park"], held.parameters | row | {"batch_id": 2}).rowcount == 0
        assert connection.execute(_LANES["state"], held.parameters).fetchone() is None


def test_a_configured_batch_size_above_a_topic_s_limit_is_lowered_to_it(
    outbox: Outbox, kafka: KafkaServer, watcher: Watcher
) -> None:
    """Else each full batch is refused, and the lane looks for a row that is to blame for it."""
    set_limit(kafka.bootstrap_servers, outbox.topic, 1_200_000)
    settings = settings_for(outbox.dsn, kafka.bootstrap_servers, {"batch.size": 4_000_000, "linger.ms": 100})
    outbox.batch({f"k{n:04}": [Session([b"x" * 10_000], 1 + n)] for n in range(800)})
    refused = metrics.REGISTRY.get_sample_value
    before = refused("outbox_transactions_total", {"outcome": "refused"})
    with RelayThread(settings):
        wait_until(lambda: drained(outbox.dsn), "everything")
    assert refused("outbox_transactions_total", {"outcome": "refused"}) == before
    assert_exactly_once(outbox, watcher)


def test_headers_and_timestamps_that_cannot_be_sent_are_parked(
    outbox: Outbox, settings: Settings, watcher: Watcher
) -> None:
    outbox.batch(
        {"a": [Session([b"1"], 10, headers=[[["name"]]])], "b": [Session([b"1"], 11, timestamps_ms=[0])]}
    )
    outbox.written.clear()
    outbox.batch({"a": [Session([b"2"], 20, headers=[[["name", "value"]]])]})
    with RelayThread(settings):
        wait_until(lambda: drained(outbox.dsn), "the second row")
    assert_exactly_once(outbox, watcher)
    assert parked(outbox.dsn) == [("a", 1, "invalid"), ("b", 1, "invalid")]


def test_a_partition_that_the_topic_does_not_have_is_parked(
    outbox: Outbox, settings: Settings, watcher: Watcher
) -> None:
    outbox.batch({"a": [Session([b"1"], 10, partitions=[1])]})
    outbox.written.clear()
    outbox.batch({"a": [Session([b"2"], 20, partitions=[0])]})
    with RelayThread(settings):
        wait_until(lambda: drained(outbox.dsn), "the second row")
    assert_exactly_once(outbox, watcher)
    assert parked(outbox.dsn) == [("a", 1, "invalid")]


@pytest.mark.guarantee(67)
def test_with_compression_the_broker_decides_what_is_too_large(
    outbox: Outbox, kafka: KafkaServer, watcher: Watcher
) -> None:
    settings = settings_for(outbox.dsn, kafka.bootstrap_servers, {"compression.type": "zstd"})
    outbox.batch({"a": [Session([b"x" * 50_000], 10)]})
    written = list(outbox.written)
    incompressible = bytes((n * n * 7919 >> 7) & 255 for n in range(50_000))
    outbox.batch({"a": [Session([incompressible], 20)]})
    outbox.written = written
    outbox.batch({"a": [Session([b"2"], 30)]})
    with RelayThread(settings):
        wait_until(lambda: drained(outbox.dsn), "what fits compressed")
    assert_exactly_once(outbox, watcher)
    assert parked(outbox.dsn) == [("a", 2, "too_large")]


class CountingConnection:
    """Counts the rows of each answer."""

    def __init__(self, connection: psycopg.Connection[Any], counts: list[int]) -> None:
        self._connection = connection
        self._counts = counts

    def execute(self, *query: Any) -> SimpleNamespace:
        found = self._connection.execute(*query).fetchall()
        self._counts.append(len(found))
        return SimpleNamespace(fetchall=lambda: found)


def test_millions_of_parked_rows_ahead_are_read_a_part_at_a_time(
    outbox: Outbox, settings: Settings, watcher: Watcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a resume to before a topic that was missing for a week."""
    monkeypatch.setattr(parked_rows, "_READ_ROWS", 7)
    batches, keys = 20, 6
    for batch in range(1, batches + 1):
        outbox.batch(simple(batch, keys))
    parks = "INSERT INTO outbox.parked (session_key, batch_id, epoch, lane, lease_token, reason, detail) SELECT o.session_key, o.batch_id,"
    query(outbox.dsn, "INSERT INTO outbox.lane (epoch, lane) VALUES (1, 0), (1, 1)")
    query(
        outbox.dsn,
        parks + " 1, o.lane, 1, 'invalid', 'test' FROM outbox.session_output o WHERE mod(o.batch_id, 3) > 0",
    )
    sent = {
        f"{batch * 100_000 + key * 100 + 99}" for batch in range(3, batches + 1, 3) for key in range(keys)
    }
    outbox.written = [each for each in outbox.written if each[2].split("/")[2] in sent]
    read: list[int] = []

    def counted(
        connection: Callable[[], psycopg.Connection[Any]], lease: Lease, cursor: Cursor
    ) -> Iterator[RowKey]:
        def counting() -> Any:
            return CountingConnection(connection(), read)

        return parked_rows.parked_after(counting, lease, cursor)

    monkeypatch.setattr(lane, "parked_after", counted)
    with RelayThread(settings):
        wait_until(lambda: drained(outbox.dsn), "everything but the parked rows")
    assert_exactly_once(outbox, watcher)
    assert max(read) == 7
    assert sum(read) >= len(parked(outbox.dsn)) == 84
