"""What an admission keeps out, and for how long it remembers it."""

import time
from collections.abc import Collection, Mapping
from typing import Any
from uuid import uuid4

import pytest

from contract.output_topics import OutputTopics
from publisher.delivery.admission import Admission
from publisher.kafka.topics import OutputTopic
from publisher.protocol.outgoing import Outgoing
from publisher.protocol.records import Row, RowKey
from publisher.protocol.refusals import Refusal
from publisher.protocol.stop_reasons import StartOverError, TopicMissingError
from service.settings import KafkaSettings


class NamedTopics:
    """Kafka has these topics, and no other."""

    def __init__(self, names: Collection[str]) -> None:
        self.names = set(names)
        self.max_bytes = 1 << 20
        self.compacted: set[str] = set()

    def describe(self, names: Collection[str], *, newer_than: float) -> dict[str, OutputTopic]:
        assert newer_than <= time.monotonic()
        for name in names:
            if name not in self.names:
                raise TopicMissingError(name, f"output topic {name!r} does not exist")
        return {
            name: OutputTopic(f"id of {name}", 4, self.max_bytes, is_compacted=name in self.compacted)
            for name in names
        }


class NoneOpen:
    """No transaction is open on any topic."""

    def begin(self) -> None: ...

    def unmet(self, _described: Mapping[str, OutputTopic]) -> set[str]:
        return set()

    def wait(self, _described: Mapping[str, OutputTopic]) -> None: ...


class ParkingAdmission(Admission):
    """Parks the rows for a missing topic by decision, and remembers what was written down."""

    def __init__(
        self, topics: NamedTopics, *, decided: bool, allowed: Collection[str] = ("there", "missing", "absent")
    ) -> None:
        stubs: Any = (topics, Outgoing(), NoneOpen(), OutputTopics(allowed))
        super().__init__(KafkaSettings(bootstrap_servers="none:1"), *stubs)
        self.decided = decided
        self.parked: list[RowKey] = []
        self.reasons: set[str] = set()

    @property
    def remembered(self) -> set[RowKey]:
        return self._aside

    def _put_aside(self, key: RowKey, found: Refusal) -> None:
        self.parked.append(key)
        self.reasons.add(found.reason)

    def _without_topic(self, error: TopicMissingError, rows: int) -> Refusal:
        if not self.decided:
            raise error
        return Refusal("topic_missing", f"{rows} rows")

    def _check_ids(self, described: Mapping[str, OutputTopic]) -> None: ...


def row(batch_id: int, key: str, *topics: str) -> Row:
    values: list[bytes | None] = [b"v"] * len(topics)
    return Row(
        batch_id, key, 0, ["A" * 22], [0], [7], [len(topics)], list(topics), values, None, None, None, None
    )


@pytest.fixture
def topics() -> NamedTopics:
    return NamedTopics(["there"])


def test_rows_for_a_missing_topic_stop_unless_somebody_decided(topics: NamedTopics) -> None:
    admission = ParkingAdmission(topics, decided=False)
    admission.begin([])
    with pytest.raises(TopicMissingError):
        admission.admit([row(1, "a", "there"), row(1, "b", "there", "missing")])
    assert admission.parked == []


def test_by_decision_the_rows_for_all_missing_topics_stay_out_and_the_others_go(topics: NamedTopics) -> None:
    admission = ParkingAdmission(topics, decided=True)
    admission.begin([])
    rows = [
        row(1, "a", "there"),
        row(1, "b", "there", "missing"),
        row(1, "c", "absent"),
        row(2, "a", "there"),
    ]
    assert admission.admit(rows) == [rows[0], rows[3]]
    assert sorted(admission.parked) == [(1, "b"), (1, "c")]
    assert admission.reasons == {"topic_missing"}


def test_a_row_for_a_topic_that_is_not_allowed_is_parked_before_kafka_is_asked_for_it(
    topics: NamedTopics,
) -> None:
    admission = ParkingAdmission(topics, decided=False)
    admission.begin([])
    progress = f"outbox-progress-{uuid4()}"
    rows = [row(1, "a", "there"), row(1, "b", "there", progress), row(1, "c", "elsewhere")]
    assert admission.admit(rows) == rows[:1]
    assert sorted(admission.parked) == [(1, "b"), (1, "c")]
    assert admission.reasons == {"invalid"}


def test_a_row_for_several_topics_that_are_not_allowed_is_parked_once(topics: NamedTopics) -> None:
    admission = ParkingAdmission(topics, decided=False)
    admission.begin([])
    # Postgres takes a parked row once, and a lane that parks it again fails.
    rows = [row(1, "a", "elsewhere", "there", "nowhere"), row(1, "b", "there"), row(1, "c", "nowhere")]
    assert admission.admit(rows) == rows[1:2]
    assert admission.parked == [(1, "a"), (1, "c")]


def test_what_the_cursor_has_passed_is_forgotten_so_that_memory_does_not_grow(topics: NamedTopics) -> None:
    admission = ParkingAdmission(topics, decided=True)
    admission.begin([(1, "z")])
    for batch_id in range(2, 100):
        rows = [row(batch_id, f"k{n}", "missing") for n in range(5)]
        assert admission.admit(rows) == []
        assert len(admission.remembered) == 5
    assert len(admission.parked) == 98 * 5
    # The same chunk again, as after a failed transaction: nothing is put aside twice.
    assert admission.admit(rows) == []
    assert len(admission.parked) == 98 * 5


def test_a_producers_batches_become_smaller_for_a_topic_that_takes_less_and_grow_back_once_it_takes_more() -> (
    None
):
    topics = NamedTopics(["there"])
    admission = ParkingAdmission(topics, decided=False)
    admission.begin([])
    usual = admission.batch_bytes
    rows = [row(1, "a", "there")]
    assert admission.admit(rows) == rows
    for max_bytes, wanted in ((2_000, 2_000), (5_000, 5_000), (1 << 20, usual)):
        topics.max_bytes = max_bytes
        with pytest.raises(StartOverError):
            admission.admit(rows)
        assert admission.batch_bytes == wanted
        # With the next producer, once for each change.
        admission.begin([])
        assert admission.admit(rows) == rows


def test_what_may_be_another_outbox_s_progress_topic_is_parked_unless_somebody_has_listed_it() -> None:
    hostile = "positions-6f2b8c9e-1b7d-4c1e-9d3a-0a1b2c3d4e5f"
    topics = NamedTopics(["there", hostile])
    rows = [row(1, "a", "there"), row(1, "b", "there", hostile), row(2, "a", "there")]
    for compacted, allowed, parked in (
        ({hostile}, (), [(1, "b")]),
        ({hostile, "there"}, (), [(1, "b")]),
        ({"there"}, (), []),
        ({hostile}, ("there", hostile), []),
    ):
        topics.compacted = compacted
        admission = ParkingAdmission(topics, decided=False, allowed=allowed)
        admission.begin([])
        assert admission.admit(rows) == [each for each in rows if each.row_key not in parked]
        assert admission.parked == parked
        assert admission.reasons == ({"invalid"} if parked else set())
