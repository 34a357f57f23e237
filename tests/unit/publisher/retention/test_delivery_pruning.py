"""A log of deliveries that cannot be pruned is told of once a pass, and stops no delivery."""

from types import SimpleNamespace
from typing import Any, cast

import psycopg
import pytest
from structlog.testing import capture_logs

from publisher.retention import delivery_pruning
from publisher.retention.delivery_pruning import DeliveryPruning


class Connection:
    """Knows one lane, and deletes none of its rows; fails while it is `broken`."""

    def __init__(self) -> None:
        self.broken = True
        self.asked = 0

    def execute(self, _sql: Any, parameters: object = None) -> Any:
        self.asked += 1
        if self.broken:
            raise psycopg.OperationalError("the disk is full\n")
        return SimpleNamespace(fetchall=lambda: [(1, 0)], fetchone=lambda: (0, False))


def test_a_failing_prune_is_logged_once_and_tried_again_after_its_pause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 1_000.0
    monkeypatch.setattr(delivery_pruning, "time", SimpleNamespace(monotonic=lambda: now))
    connection = Connection()
    pruning = DeliveryPruning(60)

    def turns() -> list[str]:
        """Take some turns; return the reasons that were logged."""
        with capture_logs() as logged:
            for _ in range(5):
                pruning.try_turn(cast("psycopg.Connection[Any]", connection))
        assert {line["event"] for line in logged} <= {"deliveries_not_pruned"}
        return [line["reason"] for line in logged]

    assert turns() == ["the disk is full"]
    assert connection.asked == 1
    now += delivery_pruning._PASS_S
    assert turns() == ["the disk is full"]
    assert connection.asked == 2
    now += delivery_pruning._PASS_S
    connection.broken = False
    assert turns() == []
    assert connection.asked == 4


def test_a_prune_that_fails_on_a_lane_begins_anew_with_the_next_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1_000.0
    monkeypatch.setattr(delivery_pruning, "time", SimpleNamespace(monotonic=lambda: now))
    connection = Connection()
    connection.broken = False
    pruning = DeliveryPruning(60)

    def step(*_: object) -> tuple[int, bool]:
        raise psycopg.errors.LockNotAvailable("locked")

    monkeypatch.setattr(pruning, "_step", step)
    with capture_logs() as logged:
        for _ in range(5):
            pruning.try_turn(cast("psycopg.Connection[Any]", connection))
    assert len(logged) == 1
    assert connection.asked == 1
