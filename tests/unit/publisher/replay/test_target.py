"""Where a replay sends to, before it asks anything there."""

import threading
from typing import Any

import pytest
from structlog.testing import capture_logs

from publisher.replay.target import open_target
from service.errors import UnavailableError
from service.settings import KafkaSettings, Settings


def test_a_target_on_another_machine_that_is_reached_without_tls_is_named() -> None:
    stop = threading.Event()
    stop.set()  # nobody waits for an answer
    target = KafkaSettings(bootstrap_servers="192.0.2.1:9092", request_timeout_s=1)
    outbox: Any = None  # not asked for yet
    with capture_logs() as logged, pytest.raises(UnavailableError):
        open_target(Settings(), outbox, target, stop, holder="me", create_topics=False)
    named = [
        (line["server"], line["address"]) for line in logged if line["event"] == "connection_unprotected"
    ]
    assert named == [("Kafka", "192.0.2.1:9092")]
