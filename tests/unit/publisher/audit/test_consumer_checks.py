"""The audit of a consumer while topics come and go."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from outbox_consumer.reading import ConsumerPosition
from publisher.audit.consumer.checks import ReadBack, check_consumed
from publisher.audit.readback.digest import EXPECTED, RECEIVED
from publisher.audit.readback.spill import Spill
from publisher.audit.readback.state import AuditState


class _Broker:
    def describe(self, topics: list[str]) -> list[Any]:
        return [SimpleNamespace(name=name, topic_id=f"id of {name}") for name in topics]

    def group_positions(self, group: str, topics: list[str]) -> list[ConsumerPosition]:
        return [ConsumerPosition(group, name, 0, f"id of {name}", 0, 5) for name in topics]


def _quiet(_name: str, _total: int) -> Callable[[int], None]:
    return lambda done: None


def test_a_topic_that_only_rows_name_when_the_audit_begins_is_no_finding(tmp_path: Path) -> None:
    """Its first delivery came after the scope was frozen, and the group has consumed it already."""
    state = AuditState(
        {}, {}, 9, ["read"], 1, begins=[{"0": 0}], ends=[{"0": 5}], next_offsets=[{"0": 5}], lows=[{"0": 0}]
    )
    state.topics.append("new")
    expected, found = Spill(tmp_path, "expected", EXPECTED, 1), Spill(tmp_path, "found", RECEIVED, 1)
    for spill in (expected, found):
        spill.restore([])
    broker: Any = _Broker()
    audit = check_consumed(
        "group", ReadBack(state, tmp_path, expected, found, lambda record: None), broker, _quiet
    )
    assert [check.name for check in audit.checks if check.count] == []
