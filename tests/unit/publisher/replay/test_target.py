"""Where a replay sends to, before it asks anything there."""

import threading
import traceback
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from structlog.testing import capture_logs

from publisher.kafka.topics import Topics
from publisher.replay.starting import answering
from publisher.replay.target import kafka_settings, open_target
from service.errors import SettingsError, UnavailableError
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


INTERNAL = KafkaException(
    KafkaError(KafkaError._TIMED_OUT, "Timed out: internal:9092/1: Failed to resolve 'internal:9092'")
)


def test_a_target_whose_broker_calls_itself_by_an_unknown_name_is_not_said_to_be_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def cluster_id(_: Topics) -> str:
        raise INTERNAL

    monkeypatch.setattr(Topics, "cluster_id", cluster_id)
    target = KafkaSettings(bootstrap_servers="192.0.2.1:9092")
    outbox: Any = None
    named = r"target.*--to-servers.*192\.0\.2\.1:9092 answers, but calls its broker internal:9092"
    with pytest.raises(UnavailableError, match=named):
        open_target(Settings(), outbox, target, threading.Event(), holder="me", create_topics=False)
    named = r"answers, but calls its broker internal:9092.*Nothing was sent"
    with pytest.raises(UnavailableError, match=named), answering(target):
        raise INTERNAL


def test_what_a_target_s_broker_answers_is_no_silence() -> None:
    target = KafkaSettings(bootstrap_servers="192.0.2.1:9092")
    named = r"192\.0\.2\.1:9092 answers with an error: .*Nothing was sent"
    with pytest.raises(UnavailableError, match=named), answering(target):
        raise KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))


def test_a_wrong_option_of_the_target_is_not_shown_with_its_value_by_whoever_prints_the_causes(
    tmp_path: Path,
) -> None:
    (tmp_path / "target.toml").write_text('[kafka.options]\n"sasl.password" = ["s3cret"]\n', "utf-8")
    with pytest.raises(SettingsError, match=r"kafka\.options\.sasl\.password") as refused:
        kafka_settings(Settings(), tmp_path / "target.toml", None)
    assert "s3cret" not in "".join(traceback.format_exception(refused.value))
