"""A host that does not exist is told from a name server that does not answer."""

import socket

import pytest

from service.errors import HostUnknownError, UnavailableError
from service.kafka.host_names import hosts_of, none_exists
from service.settings import KafkaSettings
from spark_job.input.topics import KafkaInput


@pytest.mark.parametrize(
    ("bootstrap", "hosts"),
    [
        ("kafka:9092", ["kafka"]),
        ("a:1, b:2,c", ["a", "b", "c"]),
        ("SASL_SSL://a.example:9093,[::1]:9092", ["a.example", "::1"]),
    ],
)
def test_the_hosts_of_brokers(bootstrap: str, hosts: list[str]) -> None:
    assert hosts_of(bootstrap) == hosts


@pytest.mark.parametrize(
    ("code", "kind"), [(socket.EAI_NONAME, HostUnknownError), (socket.EAI_AGAIN, UnavailableError)]
)
def test_brokers_whose_names_do_not_exist_are_a_wrong_setting(
    monkeypatch: pytest.MonkeyPatch, code: int, kind: type[UnavailableError]
) -> None:
    def resolve(*_: object) -> None:
        raise socket.gaierror(code, "no such name")

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    assert not none_exists([])
    kafka = KafkaInput(
        KafkaSettings(bootstrap_servers="nosuch.invalid:9092", request_timeout_s=1), ["events"], ""
    )
    try:
        with pytest.raises(UnavailableError) as raised:
            kafka.describe()
    finally:
        kafka.close()
    assert type(raised.value) is kind
    assert "nosuch.invalid:9092" in str(raised.value)
