"""`publisher resume` where a server does not answer."""

from contextlib import nullcontext
from typing import Any

import psycopg
import pytest
from confluent_kafka import KafkaError, KafkaException
from typer.testing import CliRunner

from publisher.cli import app
from publisher.commands import resume
from publisher.resume.planner import Planner
from service.errors import UnavailableError

INTERNAL = KafkaError(KafkaError._TIMED_OUT, "Timed out: internal:9092/1: Failed to resolve 'internal:9092'")


@pytest.mark.parametrize(
    ("raised", "named"),
    [
        (KafkaException(INTERNAL), "Kafka at 192.0.2.1:9092 answers, but calls its broker internal:9092"),
        (
            psycopg.OperationalError("the server closed the connection\n"),
            "Postgres did not answer: the server",
        ),
    ],
    ids=["another name", "Postgres"],
)
def test_the_server_that_did_not_answer_is_named(
    raised: Exception, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def plan(*_: Any) -> None:
        raise raised

    monkeypatch.setenv("OUTBOX_KAFKA__BOOTSTRAP_SERVERS", "192.0.2.1:9092")
    monkeypatch.setattr(resume, "database", lambda *_: nullcontext())
    monkeypatch.setattr(Planner, "plan", plan)
    error = CliRunner().invoke(app, ["resume", "--from", "kafka"]).exception
    assert isinstance(error, UnavailableError)
    assert str(error).startswith(named)
    assert str(error).endswith(". Lanes that were moved stay moved; run the command again")
