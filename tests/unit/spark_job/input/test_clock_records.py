"""Which partitions count as quiet: those whose end this process has not seen move for long enough."""

import pytest
from confluent_kafka import KafkaError

from service.errors import RefusedError, UnavailableError
from service.kafka.reading import NamedPartition
from service.settings import KafkaSettings
from spark_job.input import clock_records
from spark_job.input.clock_records import QuietPartitions, write_clock_records

A, B, NEW = ("in", 0), ("in", 1), ("in", 2)


def test_a_partition_is_quiet_when_its_end_has_stood_for_long_enough() -> None:
    quiet = QuietPartitions(10)
    assert quiet.look({A: 5, B: 5}, 100) == []
    assert quiet.look({A: 5, B: 6}, 109) == []
    assert quiet.look({A: 5, B: 6}, 110) == [A]
    assert quiet.look({A: 5, B: 6}, 119) == [A, B]


def test_one_that_was_never_written_to_has_nothing_that_falls_silent() -> None:
    quiet = QuietPartitions(10)
    assert quiet.look({A: 0, B: 1}, 0) == []
    assert quiet.look({A: 0, B: 1}, 20) == [B]


def test_after_a_clock_record_the_next_one_is_due_when_nothing_followed_for_as_long() -> None:
    quiet = QuietPartitions(10)
    quiet.look({A: 5, B: 5}, 0)
    assert quiet.look({A: 5, B: 5}, 10) == [A, B]
    quiet.wrote({A: 5, B: 5}, 11)
    assert quiet.look({A: 6, B: 7}, 20) == []
    assert quiet.look({A: 6, B: 7}, 21) == [A]
    assert quiet.look({A: 6, B: 7}, 30) == [A, B]


def test_a_record_that_came_before_the_clock_record_makes_no_difference_to_the_next_one() -> None:
    quiet = QuietPartitions(10)
    quiet.look({A: 5}, 0)
    quiet.look({A: 5}, 10)
    quiet.wrote({A: 6}, 10)
    assert quiet.look({A: 7}, 15) == []
    assert quiet.look({A: 7}, 20) == [A]


def test_of_two_processes_that_see_each_others_records_one_writes() -> None:
    """The other one takes over when the first is gone."""
    first, second = QuietPartitions(10), QuietPartitions(10)
    end, wrote = 1, []
    for now in range(100):
        for name, each, at in (("first", first, 0), ("second", second, 3)):
            if now < at or now % 5 != at or (name == "first" and now > 50):
                continue
            if each.look({A: end}, now):
                each.wrote({A: end}, now)
                end += 1
                wrote.append((name, now))
    assert {name for name, now in wrote if now <= 50} == {"first"}
    assert {name for name, now in wrote if now > 60} == {"second"}


def test_a_partition_that_is_made_anew_and_shorter_is_watched_anew() -> None:
    quiet = QuietPartitions(10)
    quiet.look({A: 50}, 0)
    assert quiet.look({A: 2, NEW: 1}, 10) == []


class _Producer:
    """Tells of each record what `errors` has for its partition."""

    def __init__(self, errors: dict[int, KafkaError]) -> None:
        self._errors = errors
        self._waiting: list[tuple[object, KafkaError | None, object]] = []

    def produce(
        self, topic: str, value: object, key: object, *, partition: int, on_delivery: object, **_: object
    ) -> None:
        assert value is None
        self._waiting.append((on_delivery, self._errors.get(partition), _Message(topic, partition)))

    def flush(self) -> None:
        for told, error, message in self._waiting:
            told(error, message)  # type: ignore[operator]

    def close(self) -> None: ...


class _Message:
    def __init__(self, topic: str, partition: int) -> None:
        self._topic, self._partition = topic, partition

    def topic(self) -> str:
        return self._topic

    def partition(self) -> int:
        return self._partition

    def offset(self) -> int:
        return 7 + self._partition


def write(monkeypatch: pytest.MonkeyPatch, errors: dict[int, KafkaError]) -> dict[NamedPartition, int]:
    monkeypatch.setattr(clock_records, "Producer", lambda _options: _Producer(errors))
    return write_clock_records(KafkaSettings(bootstrap_servers="localhost:1"), [A, B])


def test_the_offsets_of_what_was_written_are_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    assert write(monkeypatch, {}) == {A: 7, B: 8}


@pytest.mark.parametrize(
    ("code", "kind", "text"),
    [
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, RefusedError, "Write on topic 'in' is needed"),
        (KafkaError.CLUSTER_AUTHORIZATION_FAILED, RefusedError, "It needs Write on the input topics"),
        (KafkaError._MSG_TIMED_OUT, UnavailableError, "does not answer"),
    ],
)
def test_a_record_that_was_not_written_is_an_error(
    monkeypatch: pytest.MonkeyPatch, code: int, kind: type[Exception], text: str
) -> None:
    with pytest.raises(kind, match=text):
        write(monkeypatch, {1: KafkaError(code)})


def test_without_kafka_it_gives_up_in_time() -> None:
    nowhere = KafkaSettings(bootstrap_servers="127.0.0.1:1", request_timeout_s=1)
    with pytest.raises(UnavailableError, match=r"127\.0\.0\.1:1 does not answer: Local: Message timed out"):
        write_clock_records(nowhere, [A])
