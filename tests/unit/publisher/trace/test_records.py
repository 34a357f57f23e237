"""What is read of a record's headers, whoever wrote them, and what is reported where Kafka cannot be read."""

from types import SimpleNamespace
from typing import Any

import pytest

from publisher.trace import records
from publisher.trace.outputs import Output, found_in_kafka
from service.errors import UnavailableError
from service.settings import KafkaSettings
from tests.support.servers.nameless_broker import NamelessBroker


@pytest.mark.parametrize(
    ("revision", "read"), [(b"7", 7), (b"", 0), (b"x", 0), (b"1" * 5_000, 0), (b"9" * 300, 0)]
)
def test_a_stranger_s_revision_ends_no_trace(
    revision: bytes, read: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python reads no number of more than 4,300 digits."""
    message: Any = SimpleNamespace(
        headers=lambda: [("outbox-id", b"a/0/9/0"), ("outbox-revision", revision)],
        topic=lambda: "t",
        partition=lambda: 0,
        offset=lambda: 5,
    )
    monkeypatch.setattr(records, "_records", lambda *_: iter([message]))
    found = records.copies(KafkaSettings(), {}, {"a/0/9/0"})
    assert [(copy.outbox_id, copy.revision, copy.offset) for copy in found] == [("a/0/9/0", read, 5)]


def test_a_broker_that_calls_itself_by_an_unknown_name_is_not_said_to_be_silent() -> None:
    broker = NamelessBroker(("kafka-internal.invalid", 9092))
    output = Output(1, "a/0/9/0", 0, "t", "delivered", None, {"0": [3, 3]}, "k", 0, 1, 1)
    named = r"answers, but calls its broker kafka-internal\.invalid:9092.*advertised\.listeners"
    with broker.running():
        kafka = KafkaSettings(bootstrap_servers=broker.bootstrap_servers, request_timeout_s=2)
        with pytest.raises(UnavailableError, match=named):
            records.record_at(kafka, "t", 0, 3)
        with pytest.raises(UnavailableError, match=named):
            found_in_kafka(kafka, [output])
