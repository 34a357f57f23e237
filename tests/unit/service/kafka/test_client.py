"""The same failure of Kafka ends a process with the same exit code, whichever part of it asked."""

import socket

import pytest
from confluent_kafka import KafkaError, KafkaException

from service.errors import (
    WRONG_AT_THE_START,
    CredentialsRefusedError,
    HostUnknownError,
    OptionsRefusedError,
    OutboxError,
    RefusedError,
    UnavailableError,
)
from service.kafka.client import failure_of
from service.settings import KafkaSettings
from spark_job.failures.client_errors import of_kafka

KAFKA = KafkaSettings(bootstrap_servers="127.0.0.1:1")
FAILURES: dict[int, tuple[type[OutboxError], str]] = {
    KafkaError._SSL: (CredentialsRefusedError, "there is no TLS connection to Kafka at 127.0.0.1:1: told"),
    KafkaError._AUTHENTICATION: (CredentialsRefusedError, "refuses the credentials: told"),
    KafkaError.SASL_AUTHENTICATION_FAILED: (CredentialsRefusedError, "refuses the credentials: told"),
    KafkaError.TOPIC_AUTHORIZATION_FAILED: (RefusedError, "refuses this client: told. Grant it this right"),
    KafkaError.GROUP_AUTHORIZATION_FAILED: (RefusedError, "refuses this client: told"),
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: (RefusedError, "refuses this client: told"),
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: (RefusedError, "refuses this client: told"),
    KafkaError._INVALID_ARG: (OptionsRefusedError, "can be made with these settings: told"),
    KafkaError._TIMED_OUT: (UnavailableError, "does not answer: told"),
    KafkaError.UNKNOWN_TOPIC_OR_PART: (UnavailableError, "answers with an error: told"),
}


@pytest.mark.parametrize("code", FAILURES)
def test_a_code_has_one_class_with_the_settings_and_without_them(code: int) -> None:
    kind, said = FAILURES[code]
    error = KafkaException(KafkaError(code, "told"))
    found = failure_of(KAFKA, error)
    assert type(found) is type(of_kafka(error)) is kind
    assert said in str(found)
    assert "told" in str(of_kafka(error))


def test_a_failed_tls_connection_or_refused_option_ends_the_start_and_no_running_job() -> None:
    for code in (KafkaError._SSL, KafkaError._INVALID_ARG):
        found = of_kafka(KafkaException(KafkaError(code)))
        assert isinstance(found, WRONG_AT_THE_START)
        assert found.may_pass


def test_the_rights_of_the_client_are_named() -> None:
    refused = KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "denied"))
    assert "denied. It needs Read on the inputs (docs/ecosystem.md" in str(
        failure_of(KAFKA, refused, "Read on the inputs")
    )


def test_only_a_kafka_that_does_not_answer_has_an_unknown_host(monkeypatch: pytest.MonkeyPatch) -> None:
    def resolve(*_: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "no such name")

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    nowhere = KafkaSettings(bootstrap_servers="nosuch.invalid:9092")
    for code, kind in (
        (KafkaError._TIMED_OUT, HostUnknownError),
        (KafkaError._SSL, CredentialsRefusedError),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, RefusedError),
    ):
        assert type(failure_of(nowhere, KafkaException(KafkaError(code)))) is kind
