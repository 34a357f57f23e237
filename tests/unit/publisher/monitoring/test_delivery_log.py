"""What is delivered is logged once a second, in one line for all lanes."""

from structlog.testing import capture_logs

from publisher.monitoring.delivery_log import DeliveryLog


def test_transactions_of_all_lanes_share_a_line() -> None:
    deliveries = DeliveryLog(every_s=60)
    with capture_logs() as lines:
        deliveries.flush()
        deliveries.add(1, 0, 5, batch=3, sessions=2, events=10, parked=0)
        deliveries.add(1, 1, 7, batch=2, sessions=1, events=4, parked=1)
        deliveries.add(1, 1, 8, batch=2, sessions=1, events=1, parked=0)
        deliveries.flush()
        deliveries.add(1, 1, 9, batch=4, sessions=1, events=4, parked=0)
        deliveries.flush()
    assert lines == [
        {
            "event": "delivered",
            "log_level": "info",
            "batch": 3,
            "transactions": 3,
            "sessions": 4,
            "events": 15,
            "lanes": 2,
            "deliveries": ["1/0/5", "1/1/7-8"],
            "parked": 1,
        }
    ]
    with capture_logs() as lines:
        deliveries.flush(at_once=True)
        deliveries.flush(at_once=True)
    assert [line["batch"] for line in lines] == [4]


def test_a_transaction_that_moved_the_cursor_alone_is_no_delivery() -> None:
    deliveries = DeliveryLog()
    with capture_logs() as lines:
        deliveries.add(1, 0, 5, batch=3, sessions=0, events=0, parked=0)
        deliveries.flush(at_once=True)
    assert lines == []
