"""Why no tombstone can be written."""

from uuid import uuid4

import pytest

from publisher.erasure.tombstones import TombstoneWriter
from publisher.outbox.identity import OutboxIdentity
from service.errors import UnavailableError
from service.settings import KafkaSettings, Settings
from tests.support.servers.nameless_broker import NamelessBroker


def test_a_broker_that_calls_itself_by_an_unknown_name_is_not_said_to_be_silent() -> None:
    broker = NamelessBroker(("kafka-internal.invalid", 9092))
    identity = OutboxIdentity(uuid4(), "cluster", "outbox", {"t": "id"}, 1, 1, 1, 1)
    with broker.running():
        kafka = KafkaSettings(bootstrap_servers=broker.bootstrap_servers, request_timeout_s=1)
        named = r"the tombstones: .* answers, but calls its broker kafka-internal\.invalid:9092.*not erased"
        with pytest.raises(UnavailableError, match=named):
            TombstoneWriter(Settings(kafka=kafka), identity, ["t"])
