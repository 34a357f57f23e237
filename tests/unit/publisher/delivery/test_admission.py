"""What an admission keeps out, and for how long it remembers it."""

import time
from collections.abc import Collection, Mapping
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest

from contract.output_topics import OutputTopics
from publisher.delivery.admission import Admission
from publisher.delivery.excluded_rows import ExcludedRows
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
        self.generation = 1

    def ends(self, _name: str, partitions: Collection[int], *, committed: bool = False) -> dict[int, int]:
        """No transaction is open, so the two ends are the same."""
        del committed
        return dict.fromkeys(partitions, 0)

    def forget(self, names: Collection[str]) -> None:
        self.generation += 1
        assert set(names) <= self.names

    def describe(self, names: Collection[str], *, newer_than: float = 0.0) -> dict[str, OutputTopic]:
        assert newer_than <= time.monotonic()
        for name in names:
            if name not in self.names:
                raise TopicMissingError(name, f"output topic {name!r} does not exist")
        return {
            name: OutputTopic(
                f"id {self.generation} of {name}", 4, self.max_bytes, is_compacted=name in self.compacted
            )
            for name in names
        }


class KnownIds:
    """Records which ids were checked."""

    def __init__(self) -> None:
        self.checked: list[dict[str, str]] = []

    def check(self, ids: Mapping[str, str]) -> None:
        self.checked.append(dict(ids))


class Policy:
    """Records what is excluded, and excludes the rows for a missing topic only by decision."""

    def __init__(self, *, decided: bool) -> None:
        self._decided = decided
        self.excluded: list[RowKey] = []
        self.reasons: set[str] = set()

    def exclude(self, row: RowKey, refusal: Refusal) -> None:
        self.excluded.append(row)
        self.reasons.add(refusal.reason)

    def topic_missing(self, error: TopicMissingError, rows: int) -> Refusal:
        if not self._decided:
            raise error
        return Refusal("topic_missing", f"{rows} rows")


def begun(
    topics: NamedTopics, policy: Policy, allowed: Collection[str] = ("there", "missing", "absent")
) -> Admission:
    """Return an admission that has begun, with nothing excluded earlier."""
    settings = SimpleNamespace(kafka=KafkaSettings(bootstrap_servers="none:1"))
    context: Any = SimpleNamespace(settings=settings, topics=topics, give_up=lambda: False)
    admission = Admission(context, Outgoing(), OutputTopics(allowed), policy)
    admission.begin(ExcludedRows(), KnownIds())
    return admission


def row(batch_id: int, key: str, *topics: str) -> Row:
    values: list[bytes | None] = [b"v"] * len(topics)
    return Row(
        batch_id, key, 0, ["A" * 22], [0], [7], [len(topics)], list(topics), values, None, None, None, None
    )


@pytest.fixture
def topics() -> NamedTopics:
    return NamedTopics(["there"])


def test_rows_for_a_missing_topic_stop_unless_somebody_decided(topics: NamedTopics) -> None:
    policy = Policy(decided=False)
    admission = begun(topics, policy)
    with pytest.raises(TopicMissingError):
        admission.admit([row(1, "a", "there"), row(1, "b", "there", "missing")])
    assert policy.excluded == []


def test_by_decision_the_rows_for_all_missing_topics_stay_out_and_the_others_go(topics: NamedTopics) -> None:
    policy = Policy(decided=True)
    admission = begun(topics, policy)
    rows = [
        row(1, "a", "there"),
        row(1, "b", "there", "missing"),
        row(1, "c", "absent"),
        row(2, "a", "there"),
    ]
    assert admission.admit(rows) == [rows[0], rows[3]]
    assert sorted(policy.excluded) == [(1, "b"), (1, "c")]
    assert policy.reasons == {"topic_missing"}


def test_a_row_for_a_topic_that_is_not_allowed_is_parked_before_kafka_is_asked_for_it(
    topics: NamedTopics,
) -> None:
    policy = Policy(decided=False)
    admission = begun(topics, policy)
    progress = f"outbox-progress-{uuid4()}"
    rows = [row(1, "a", "there"), row(1, "b", "there", progress), row(1, "c", "elsewhere")]
    assert admission.admit(rows) == rows[:1]
    assert sorted(policy.excluded) == [(1, "b"), (1, "c")]
    assert policy.reasons == {"invalid"}


def test_a_row_for_several_topics_that_are_not_allowed_is_parked_once(topics: NamedTopics) -> None:
    policy = Policy(decided=False)
    admission = begun(topics, policy)
    # Postgres takes a parked row once, and a lane that parks it again fails.
    rows = [row(1, "a", "elsewhere", "there", "nowhere"), row(1, "b", "there"), row(1, "c", "nowhere")]
    assert admission.admit(rows) == rows[1:2]
    assert policy.excluded == [(1, "a"), (1, "c")]


def test_what_the_cursor_has_passed_is_forgotten_so_that_memory_does_not_grow(topics: NamedTopics) -> None:
    policy, excluded = Policy(decided=True), ExcludedRows([RowKey(1, "z")])
    admission = begun(topics, policy)
    admission.begin(excluded, KnownIds())
    for batch_id in range(2, 100):
        rows = [row(batch_id, f"k{n}", "missing") for n in range(5)]
        assert admission.admit(rows) == []
        assert len(excluded._keys) == 5
    assert len(policy.excluded) == 98 * 5
    # The same chunk again, as after a failed transaction: nothing is excluded twice.
    assert admission.admit(rows) == []
    assert len(policy.excluded) == 98 * 5


def test_a_producers_batches_become_smaller_for_a_topic_that_takes_less_and_grow_back_once_it_takes_more() -> (
    None
):
    topics = NamedTopics(["there"])
    admission = begun(topics, Policy(decided=False))
    usual = admission.batch_bytes
    rows = [row(1, "a", "there")]
    assert admission.admit(rows) == rows
    for max_bytes, wanted in ((2_000, 2_000), (5_000, 5_000), (1 << 20, usual)):
        topics.max_bytes = max_bytes
        with pytest.raises(StartOverError):
            admission.admit(rows)
        assert admission.batch_bytes == wanted
        # With the next producer, once for each change.
        admission.begin(ExcludedRows(), KnownIds())
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
        policy = Policy(decided=False)
        admission, topic_ids = begun(topics, policy, allowed), KnownIds()
        admission.begin(ExcludedRows(), topic_ids)
        assert admission.admit(rows) == [each for each in rows if each.row_key not in parked]
        assert policy.excluded == parked
        # An id is recorded before the first record, and says that this outbox delivers to the topic.
        assert [set(ids) for ids in topic_ids.checked] == [{"there"} if parked else {"there", hostile}]
        assert policy.reasons == ({"invalid"} if parked else set())


def test_the_id_of_a_topic_is_checked_with_its_rows_and_again_when_its_offsets_begin_anew(
    topics: NamedTopics,
) -> None:
    admission, topic_ids = begun(topics, Policy(decided=False)), KnownIds()
    admission.begin(ExcludedRows(), topic_ids)
    admission.admit([row(1, "a", "there")])
    assert topic_ids.checked == [{"there": "id 1 of there"}]
    admission.check_offsets({"there": {"0": [0, 7]}})
    admission.check_offsets({"there": {"0": [8, 9]}})
    assert topic_ids.checked == [{"there": "id 1 of there"}]
    admission.check_offsets({"there": {"0": [0, 1]}})
    assert topic_ids.checked[1:] == [{"there": "id 2 of there"}]
