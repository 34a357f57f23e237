"""A range of offsets is read whole, whoever reads it: an end below it, and silence, are no ends."""

import ast
import itertools
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from publisher.kafka import clients
from publisher.kafka.progress_reader import OpenTransactionError, records_backwards
from publisher.trace import records
from service.kafka import reading as kafka_reading
from service.kafka.reading import EndNotReachedError, NamedPartition, RangeReader
from service.settings import KafkaSettings, Settings
from spark_job.input.reading import committed_records
from spark_job.recovery import outbox_behind
from spark_job.recovery.outbox_behind import Delivered
from tests.support.lanes import COMMIT, RECORD
from tests.support.paths import ROOT
from tests.support.proxies.scripted_consumer import EOF, Answer, ScriptedConsumer


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second for each look at the clock: no test waits for it."""
    monkeypatch.setattr(kafka_reading, "time", SimpleNamespace(monotonic=itertools.count().__next__))


def scripted(*consumers: ScriptedConsumer, timeout_s: float = 20) -> RangeReader:
    each: Any = iter(consumers)
    return RangeReader(lambda: next(each), timeout_s)


def offsets(reader: RangeReader, ranges: Mapping[NamedPartition, tuple[int, int]]) -> list[tuple[int, int]]:
    return [(each.partition(), each.offset()) for block in reader.read(ranges) for each in block]


def test_each_partition_is_read_to_its_own_end() -> None:
    consumer = ScriptedConsumer(
        [
            Answer(0),
            Answer(3, partition=1),
            Answer(4, EOF, partition=1),
            Answer(5, partition=1),
            Answer(1),
            Answer(9, partition=1),
            Answer(2),
            Answer(7, EOF, partition=2),
        ]
    )
    reader = scripted(consumer)
    found = offsets(reader, {("in", 0): (0, 3), ("in", 1): (3, 7), ("in", 2): (5, 7), ("in", 3): (9, 9)})
    assert found == [(0, 0), (1, 3), (1, 5), (0, 1), (0, 2)]
    assert reader.positions == {("in", 0): 3, ("in", 1): 7, ("in", 2): 7, ("in", 3): 9}


@pytest.mark.parametrize("others", [{}, {("in", 1): (0, 1)}], ids=["alone", "beside another"])
def test_what_a_shorter_partition_begins_again_with_is_left_out(
    others: dict[NamedPartition, tuple[int, int]],
) -> None:
    """`auto.offset.reset`: its first record follows where the wanted ones would be."""
    answers = [Answer(0), Answer(1), Answer(5), Answer(6), Answer(0, partition=1)]
    found = offsets(scripted(ScriptedConsumer(answers)), {("in", 0): (5, 7)} | others)
    assert found == [(0, 5), (0, 6), *((1, 0) for _ in others)]


def test_what_was_not_read_is_said() -> None:
    reader = scripted(
        ScriptedConsumer([Answer(0), Answer(1, EOF)]), ScriptedConsumer([]), ScriptedConsumer([])
    )
    with pytest.raises(
        EndNotReachedError, match="in/0 was not read to offset 3 within 20 s: it ends at offset 1"
    ) as raised:
        offsets(reader, {("in", 0): (0, 3)})
    assert raised.value.readable == {("in", 0): 1}


def test_a_consumer_that_falls_silent_is_made_again_where_it_was() -> None:
    second = ScriptedConsumer([Answer(1), Answer(2)])
    first = ScriptedConsumer([Answer(0)])
    assert offsets(scripted(first, second), {("in", 0): (0, 3)}) == [(0, 0), (0, 1), (0, 2)]
    assert first.closed
    assert second.assigned == [("in", 0, 1)]


Reads = Callable[[], object]


def test_a_replica_that_lags_hides_no_delivered_batch_from_a_start() -> None:
    """It would miss that the database was restored."""
    consumer = ScriptedConsumer(
        [Answer(0, EOF), Answer(0, key=b"1/0", value=RECORD.encode()), Answer(2, EOF)]
    )
    found = outbox_behind._read_newest(scripted(consumer), "in", {0: (0, 2)})
    assert found == [Delivered(4, COMMIT, epoch=1)]


def test_a_replica_that_lags_is_no_open_transaction_once_it_has_caught_up() -> None:
    consumer = ScriptedConsumer(
        [Answer(0, EOF), Answer(0, key=b"1/0", value=RECORD.encode()), Answer(2, EOF)]
    )
    assert [each.value for each in records_backwards(scripted(consumer), "in", 0, 2)] == [RECORD.encode()]
    hidden = [ScriptedConsumer([Answer(0, EOF)]), ScriptedConsumer([]), ScriptedConsumer([])]
    with pytest.raises(OpenTransactionError, match="readable up to 0 only"):
        list(records_backwards(scripted(*hidden), "in", 0, 2))


def test_a_replica_that_lags_hides_no_copy_of_an_output(monkeypatch: pytest.MonkeyPatch) -> None:
    output: Any = Answer(1)
    output.headers = lambda: [("outbox-id", b"id/0/5/0")]
    answers: list[Answer] = [Answer(0, EOF), output, Answer(2, EOF)]
    monkeypatch.setattr(clients, "progress_consumer", lambda _settings: ScriptedConsumer(answers))
    found = records.copies(KafkaSettings(), {("in", 0): (0, 1)}, ["id/0/5/0"])
    assert [(each.outbox_id, each.offset) for each in found] == [("id/0/5/0", 1)]
    answers[:] = [Answer(0, EOF)]
    with pytest.raises(EndNotReachedError, match="in/0 was not read to offset 2"):
        records.copies(KafkaSettings(), {("in", 0): (0, 1)}, ["id/0/5/0"])


def of_the_publisher(kafka: KafkaSettings) -> None:
    clients.progress_consumer(kafka)


def of_a_rebuild(kafka: KafkaSettings) -> None:
    assert list(committed_records(kafka.client(), "in", 0, 3, 7, 20))


def of_a_start(kafka: KafkaSettings) -> None:
    bounds = {0: (3, 7)}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(outbox_behind, "admin_client", lambda _settings: None)
        patched.setattr(outbox_behind, "_bounds", lambda _admin, _topic: bounds)
        assert outbox_behind.newest_delivered(Settings(kafka=kafka), COMMIT) == []


@pytest.mark.parametrize("reads", [of_the_publisher, of_a_rebuild, of_a_start])
def test_few_records_are_read_ahead_because_their_keys_and_headers_are_not_counted(
    monkeypatch: pytest.MonkeyPatch, reads: Callable[[KafkaSettings], None]
) -> None:
    """librdkafka 2.16 counts the bytes of values only: a hundred thousand records of a megabyte of headers are little to it."""
    consumer = ScriptedConsumer([Answer(3), Answer(7)])
    monkeypatch.setattr(kafka_reading, "Consumer", consumer)
    reads(KafkaSettings(options={"queued.min.messages": 100_000, "isolation.level": "read_uncommitted"}))
    assert consumer.options["queued.min.messages"] <= 100
    # So that it still reads fast: large answers, and the next one as soon as there is room.
    assert consumer.options["fetch.message.max.bytes"] == 4 << 20
    assert consumer.options["fetch.queue.backoff.ms"] == 1
    assert consumer.options["isolation.level"] == "read_committed"


def test_what_reads_records_is_made_in_one_place() -> None:
    """The other consumer reads none: it asks for the offsets of a group."""
    made = [
        str(path.relative_to(ROOT))
        for folder in ("service", "publisher", "spark_job", "contract", "db")
        for path in (ROOT / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] == "Consumer"
    ]
    assert sorted(made) == ["publisher/audit/readback/topics.py", "service/kafka/reading.py"]
