"""The verdict of the acceptance tests sees every kind of fault: a verdict that cannot fail proves nothing."""

from collections.abc import Callable

import pytest

from tests.support.pipeline.expectation import Expectation, Output
from tests.support.pipeline.verdict import assert_delivered
from tests.support.watching import DeliveredEvent

EXPECTED = Expectation(
    outputs=[Output("t", b"k", b"%d" % n, (("h", b"v"),), f"topic/0/9/{n}") for n in range(4)]
)


def seen() -> list[DeliveredEvent]:
    return [
        DeliveredEvent(
            output.topic, 0, n, output.key, output.value, output.headers, output.outbox_id, output.revision
        )
        for n, output in enumerate(EXPECTED.outputs)
    ]


def test_a_faultless_delivery_passes() -> None:
    assert_delivered(EXPECTED, seen())


@pytest.mark.parametrize(
    "fault",
    [
        lambda events: events[:-1],
        lambda events: [*events, events[-1]],
        lambda events: [*events, events[-1]._replace(value=b"new")],
        lambda events: [events[0]._replace(value=b"changed"), *events[1:]],
        lambda events: [events[0]._replace(value=None), *events[1:]],
        lambda events: [events[0]._replace(key=b"other"), *events[1:]],
        lambda events: [events[0]._replace(outbox_id="topic/0/9/1"), *events[1:]],
        lambda events: [events[0]._replace(headers=()), *events[1:]],
        lambda events: [events[1], events[0], *events[2:]],
        lambda events: [events[0]._replace(topic="u"), *events[1:]],
        lambda events: [events[0]._replace(revision=1), *events[1:]],
        lambda events: [*events, events[0]._replace(revision=1)],
    ],
    ids=[
        "lost",
        "twice",
        "twice with other bytes",
        "other bytes",
        "tombstone instead",
        "other key",
        "id used twice",
        "header lost",
        "out of order",
        "other topic",
        "other revision",
        "reissued unasked",
    ],
)
def test_a_fault_fails(fault: Callable[[list[DeliveredEvent]], list[DeliveredEvent]]) -> None:
    with pytest.raises(AssertionError):
        assert_delivered(EXPECTED, fault(seen()))
