"""Where outputs may go."""

import pytest
from pydantic import ValidationError

from contract.output_topics import OutputTopics
from service.settings import PublisherSettings

UUID = "6f2b8c9e-1b7d-4c1e-9d3a-0a1b2c3d4e5f"


@pytest.mark.parametrize(
    "topic",
    [
        f"outbox-progress-{UUID}",
        f"outbox-progress-{UUID}-replays",
        f"our.positions-{UUID}",
        f"our.positions-{UUID}-replays",
        "__consumer_offsets",
        "__transaction_state",
    ],
)
@pytest.mark.parametrize("allowed", [(), ("outbox-*", "our*", "__*")])
def test_no_output_goes_to_a_progress_topic_whatever_the_settings_allow(
    topic: str, allowed: tuple[str, ...]
) -> None:
    assert OutputTopics(allowed, "our.positions").refusal(topic)


def test_without_settings_every_other_topic_is_allowed() -> None:
    topics = OutputTopics()
    assert [topics.refusal(name) for name in ("orders", f"tenant-{UUID}", "outbox-progress", "__mine")] == [
        None
    ] * 4


@pytest.mark.parametrize("name", ["any", "a.b", "x-y"])
def test_a_compacted_topic_that_is_called_like_a_progress_topic_is_refused_unless_it_is_listed(
    name: str,
) -> None:
    for topic in (f"{name}-{UUID}", f"{name}-{UUID}-replays"):
        assert "[publisher] output_topics" in (OutputTopics().refusal_where_compacted(topic) or "")
        for allowed in (topic, f"{name}-*"):
            listing = OutputTopics([allowed])
            assert (listing.refusal(topic), listing.refusal_where_compacted(topic)) == (None, None)
    for other in (name, UUID, f"{name}-{UUID}-orders", f"{name}-{UUID[:-1]}"):
        assert OutputTopics().refusal_where_compacted(other) is None


def test_names_are_exact_and_prefixes_end_in_a_star() -> None:
    topics = OutputTopics(["orders", "eu.*"])
    assert topics.refusal("orders") is None
    assert topics.refusal("eu.orders") is None
    for refused in ("orders2", "order", "eu", "us.orders"):
        assert "[publisher] output_topics" in (topics.refusal(refused) or "")


def test_a_dot_in_the_progress_topic_s_name_is_no_wildcard() -> None:
    assert OutputTopics((), "a.b").refusal(f"axb-{UUID}") is None


@pytest.mark.parametrize("wrong", ["*", "", "a b", "a*b", "a**"])
def test_what_is_no_topic_is_refused_in_the_settings(wrong: str) -> None:
    with pytest.raises(ValidationError):
        PublisherSettings(output_topics=(wrong,))


def test_the_verdicts_that_are_remembered_are_bounded() -> None:
    topics = OutputTopics(["orders"])
    for number in range(30_000):
        topics.refusal(f"t{number}")
    assert len(topics._refusals) <= 10_000
