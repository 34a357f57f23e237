"""From the events of one order to its total.

`python -m doctest transform.py` runs the example below, without Spark, Kafka or Postgres.
"""

from collections.abc import Iterable

from spark_job import OutputEvent, Session


def transform(session: Session) -> Iterable[OutputEvent]:
    """Yield one event with the number of items of an order and what they cost.

    A pure function of its session: no clock, no random numbers, no other system. If it raises, the session becomes a dead letter with
    its events and the traceback, and the stream continues.

    >>> from datetime import UTC, datetime
    >>> from spark_job import Event, Position
    >>> noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    >>> events = [
    ...     Event.of("order_opened", {"order_id": "o-1"}, noon, 0),
    ...     Event.of("item_added", {"order_id": "o-1", "cents": 250}, noon, 1),
    ...     Event.of("item_added", {"order_id": "o-1", "cents": 100}, noon, 2),
    ...     Event.of("order_closed", {"order_id": "o-1"}, noon, 3),
    ... ]
    >>> order = Session("o-1", events, noon, noon, Position("orders.events", 0, 0), Position("orders.events", 0, 3))
    >>> [(output.topic, output.value) for output in transform(order)]
    [('orders.totals', {'order': 'o-1', 'items': 2, 'cents': 350})]
    """
    items = [event.value for event in session.events if event.type == "item_added"]
    total = sum(item["cents"] for item in items)
    yield OutputEvent("orders.totals", {"order": session.key, "items": len(items), "cents": total})
