"""From the events of one order to its total. `pytest` runs test_transform.py, without Spark, Kafka or Postgres."""

from collections.abc import Iterable

from spark_job import OutputEvent, Session


def transform(session: Session) -> Iterable[OutputEvent]:
    """Yield one event with the number of items of an order and what they cost.

    A pure function of its session: no clock, no random numbers, no other system. If it raises, the session becomes a dead letter with
    its events and the traceback, and the stream continues.
    """
    items = [event.value for event in session.of("item_added")]
    total = sum(item["cents"] for item in items)
    yield OutputEvent("orders.totals", {"order": session.key, "items": len(items), "cents": total})
