"""A row becomes the records that its columns describe."""

from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer
from hypothesis import given
from hypothesis import strategies as st

from publisher.protocol.outgoing import Outgoing
from publisher.protocol.records import (
    NO_EXTRAS,
    ExtraHeaders,
    OutputRecord,
    batch_size,
    is_plain,
    produce_plain,
    records,
    value_bytes,
)
from publisher.protocol.refusals import TopicLimits, refusal
from service.lifecycle.backoff import Backoff
from tests.support.lanes import PLAIN


def as_records(calls: list[tuple[Any, ...]]) -> list[OutputRecord]:
    return [
        OutputRecord(topic, value, key, partition, time, headers)
        for topic, value, key, partition, _, _, time, headers in calls
    ]


@given(st.lists(st.none() | st.binary(max_size=5), min_size=1, max_size=30), st.sets(st.integers(0, 40)))
def test_the_fast_path_sends_what_the_general_one_describes_even_when_the_queue_fills(
    values: list[bytes | None], full_at: set[int]
) -> None:
    row = PLAIN._replace(values=values, topics=["out"] * len(values), session_outputs=[len(values)])
    sent: list[tuple[Any, ...]] = []
    attempts = 0

    def produce(*arguments: Any) -> None:
        nonlocal attempts
        attempts += 1
        if attempts in full_at:
            raise BufferError
        sent.append(arguments)

    assert is_plain(row, NO_EXTRAS)
    reached = [0]
    for _ in range(len(full_at) + 1):
        try:
            produce_plain(produce, row, "out", (), reached[0], reached, lambda *_: None)
            break
        except BufferError:
            continue
    assert as_records(sent) == list(records(row))
    # The first and the last record bound the row's offsets.
    assert [call[4] is not None for call in sent] == [n in (0, len(values) - 1) for n in range(len(values))]


def test_the_index_counts_within_each_session() -> None:
    row = PLAIN._replace(
        session_topic_ids=["T", "U"], session_partitions=[3, 4], session_ends=[99, 7], session_outputs=[1, 2]
    )
    assert [record.headers[0][1] for record in records(row)] == [b"T/3/99/0", b"U/4/7/0", b"U/4/7/1"]


@pytest.mark.parametrize(
    "changed",
    [
        {"revision": 1},
        {"topics": ["out", "other", "out"]},
        {"keys": [b"x", None, None]},
        {"headers": [None, None, None]},
        {"partitions": [None, 1, None]},
        {"timestamps_ms": [None, 1, None]},
        {"values": [], "topics": [], "session_outputs": [0]},
        {
            "session_ends": [1, 2],
            "session_outputs": [1, 2],
            "session_partitions": [0, 0],
            "session_topic_ids": ["T", "T"],
        },
    ],
)
def test_only_plain_rows_take_the_fast_path(changed: dict[str, Any]) -> None:
    assert not is_plain(PLAIN._replace(**changed), NO_EXTRAS)
    assert not is_plain(PLAIN, ExtraHeaders(("batch",)))


def test_a_row_that_contradicts_itself_is_refused() -> None:
    topics = {"out": TopicLimits(1, None)}
    found = refusal(PLAIN._replace(session_outputs=[2], revision=1), topics, 1_000_000, Outgoing())
    assert found is not None
    assert (found.reason, "count 2 outputs" in found.detail) == ("invalid", True)
    found = refusal(PLAIN._replace(headers=[[["n", 5]], None, None]), topics, 1_000_000, Outgoing())
    assert found is not None
    assert found.reason == "invalid"


@pytest.mark.parametrize(
    "pair", [["secret"], "secret", {"name": "secret"}, ["name", "secret", "more"], [7, "secret"]]
)
def test_what_is_logged_of_a_header_that_cannot_be_read_is_not_its_bytes(pair: object) -> None:
    found = refusal(
        PLAIN._replace(headers=[[pair], None, None]), {"out": TopicLimits(1, None)}, 1_000_000, Outgoing()
    )
    assert found is not None
    assert "secret" not in found.detail


@pytest.mark.parametrize(("partition", "fits"), [(None, True), (0, True), (2, True), (3, False), (-2, False)])
def test_a_partition_outside_the_topic_is_refused(partition: int | None, fits: bool) -> None:
    row = PLAIN._replace(partitions=[None, partition, None])
    assert (refusal(row, {"out": TopicLimits(3, None)}, 1_000_000, Outgoing()) is None) == fits


@given(st.integers(0, 6_000))
def test_the_quick_size_check_never_lets_through_what_the_exact_one_refuses(length: int) -> None:
    row = PLAIN._replace(values=[b"x" * length, None, b"y"], session_key="k" * 1_024)
    limit = 4_096
    exact = max(batch_size(record) for record in records(row))
    assert (refusal(row, {"out": TopicLimits(1, limit)}, 1_000_000, Outgoing()) is None) == (exact <= limit)


@pytest.mark.parametrize("limit", [None, 1_000_000], ids=["only the broker knows", "a higher one"])
@pytest.mark.parametrize("revision", [0, 1], ids=["the fast path", "the general one"])
def test_what_the_producer_itself_would_refuse_is_refused_though_its_topic_takes_it(
    limit: int | None, revision: int
) -> None:
    """Compared with a real producer: its lane would be stopped by the row for ever."""
    most = 4_096
    producer = Producer({"bootstrap.servers": "127.0.0.1:1", "message.max.bytes": most, "log_level": 0})
    taken = []
    for length in range(most - 256, most):
        row = PLAIN._replace(values=[b"", b"x" * length, None], revision=revision)
        _, record, _ = records(row)
        found = refusal(row, {"out": TopicLimits(1, limit)}, most, Outgoing())
        if found is None:
            # Raises what a lane would stop at.
            producer.produce(record.topic, record.value, record.key, headers=list(record.headers))
            taken.append(length)
        else:
            assert found.reason == "too_large"
            assert found.detail.startswith("output 1 for topic 'out' counts ")
            assert (
                f"message.max.bytes and queue.buffering.max.kbytes of [kafka.options] allow {most}"
                in found.detail
            )
    # A header's lengths are counted with more bytes than librdkafka needs for them: a few records below the bound are refused.
    value = b"x" * (taken[-1] + 1 + 10 * len(record.headers))
    with pytest.raises(KafkaException, match="MSG_SIZE_TOO_LARGE"):
        producer.produce(record.topic, value, record.key, headers=list(record.headers))
    producer.purge()


def test_waits_double_up_to_the_bound_and_start_over() -> None:
    backoff = Backoff(least_s=1.0, most_s=4.0)
    for full in (1.0, 2.0, 4.0, 4.0):
        assert full / 2 <= backoff.next() <= full
    backoff.reset()
    assert backoff.next() <= 1.0


def test_tombstones_count_no_bytes() -> None:
    assert value_bytes(PLAIN._replace(values=[b"12", None, b"345"])) == 5
    assert value_bytes(PLAIN._replace(values=[b"12", b"345"])) == 5
