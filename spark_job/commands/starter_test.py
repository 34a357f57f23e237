"""What the transform makes of some orders. Events are judged by outbox.toml, as the job does it, and outputs are compared as stored."""

from pathlib import Path

from transform import transform

from spark_job import OutputEvent
from spark_job.testing import assert_outputs, run

SETTINGS = Path(__file__).with_name("outbox.toml")
ORDER: list[dict[str, object]] = [
    {"order_id": "o-1", "event": "order_opened"},
    {"order_id": "o-1", "event": "item_added", "cents": 250},
    {"order_id": "o-1", "event": "item_added", "cents": 100},
    {"order_id": "o-1", "event": "order_closed"},
]


def test_a_closed_order_has_one_total() -> None:
    result = run(transform, ORDER, SETTINGS)
    assert_outputs(result, [OutputEvent("orders.totals", {"order": "o-1", "items": 2, "cents": 350})])


def test_an_open_order_has_none() -> None:
    result = run(transform, ORDER[:-1], SETTINGS)
    assert_outputs(result, [])
    assert result.open == ["o-1"]
