"""A lane whose connection to Kafka broke takes a new epoch, after what it delivered and before it delivers more."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError

from db.settings import KafkaSettings, PublisherSettings
from publisher.lane import Lane
from publisher.link import Link
from publisher.open_lane import OpenLane, Outcome
from publisher.shared import Epoch, Shared, StartOverError


class Opened:
    """An open lane whose producer hears of a broken connection while it delivers."""

    def __init__(self, link: Link, outcome: Outcome, *, breaks: bool) -> None:
        self._link, self._outcome, self._breaks = link, outcome, breaks

    def run_once(self) -> Outcome:
        if self._breaks:
            self._link.report(KafkaError(KafkaError._TRANSPORT))
        return self._outcome


def opened(outcome: Outcome, *, breaks: bool) -> Lane:
    settings: Any = SimpleNamespace(kafka=KafkaSettings(), publisher=PublisherSettings())
    lane = Lane(cast(Shared, SimpleNamespace(settings=settings, topics=None)), Epoch(1, 1, 1), 0)
    lane._open = cast(OpenLane, Opened(lane._link, outcome, breaks=breaks))
    return lane


def test_a_lane_that_delivered_over_a_broken_link_starts_over() -> None:
    with pytest.raises(StartOverError):
        opened(Outcome.DELIVERED, breaks=True).run_once()


@pytest.mark.parametrize(("outcome", "breaks"), [(Outcome.DELIVERED, False), (Outcome.IDLE, True)])
def test_a_lane_goes_on_over_a_good_link_and_where_nothing_was_sent(outcome: Outcome, breaks: bool) -> None:
    assert opened(outcome, breaks=breaks).run_once() is outcome
