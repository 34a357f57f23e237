"""What the vendors' packages are asked, with stand-ins for these packages: no test has a provider."""

import base64
import json
import sys
from datetime import UTC, datetime
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from service.logins import aws, azure, google

EXPIRES = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC).replace(tzinfo=None)
"""As google-auth has it: UTC, without saying so."""


def stand_in(monkeypatch: pytest.MonkeyPatch, name: str, **names: Any) -> None:
    module = ModuleType(name)
    vars(module).update(names)
    monkeypatch.setitem(sys.modules, name, module)


@pytest.mark.parametrize(
    ("host", "region"),
    [
        ("b-1.demo.ab12c3.c2.kafka.eu-west-1.amazonaws.com:9098,b-2.demo", "eu-west-1"),
        ("boot-ab12.c1.kafka-serverless.us-gov-west-1.amazonaws.com:9098", "us-gov-west-1"),
        ("outbox.cluster-abc.ap-southeast-2.rds.amazonaws.com", "ap-southeast-2"),
        ("outbox.abc.rds.cn-north-1.amazonaws.com.cn", "cn-north-1"),
    ],
)
def test_the_region_is_in_the_name_of_the_host(host: str, region: str) -> None:
    assert aws.region_of(host) == region


def test_a_host_of_another_name_is_in_the_region_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ValueError, match="set AWS_REGION"):
        aws.region_of("127.0.0.1:9098")
    monkeypatch.setenv("AWS_REGION", "eu-north-1")
    assert aws.region_of("127.0.0.1:9098") == "eu-north-1"


def test_msk_and_rds_get_what_is_signed_for_their_region(monkeypatch: pytest.MonkeyPatch) -> None:
    signer = SimpleNamespace(generate_auth_token=lambda region: (f"for {region}", 1_700_000_000_000))
    stand_in(monkeypatch, "aws_msk_iam_sasl_signer", MSKAuthTokenProvider=signer)
    assert aws.kafka_token("b-1.kafka.eu-west-1.amazonaws.com:9098") == ("for eu-west-1", 1_700_000_000)

    def client(service: str, region_name: str) -> Any:
        assert (service, region_name) == ("rds", "eu-west-1")
        return SimpleNamespace(generate_db_auth_token=lambda **asked: json.dumps(asked))

    stand_in(monkeypatch, "boto3", client=client)
    host = "outbox.abc.eu-west-1.rds.amazonaws.com"
    assert json.loads(aws.postgres_password(host, 5432, "job")) == {
        "DBHostname": host,
        "Port": 5432,
        "DBUsername": "job",
        "Region": "eu-west-1",
    }


def test_event_hubs_and_postgres_get_a_token_of_their_own_scope(monkeypatch: pytest.MonkeyPatch) -> None:
    class Credential:
        def get_token(self, scope: str) -> Any:
            return SimpleNamespace(token=scope, expires_on=1_700_000_000)

    stand_in(monkeypatch, "azure")
    stand_in(monkeypatch, "azure.identity", DefaultAzureCredential=Credential)
    azure._credential.cache_clear()
    try:
        assert azure.kafka_token("space.servicebus.windows.net:9093") == (
            "https://space.servicebus.windows.net/.default",
            1_700_000_000,
        )
        assert azure.postgres_password("h", 5432, "u") == "https://ossrdbms-aad.database.windows.net/.default"
    finally:
        azure._credential.cache_clear()


def test_googles_access_token_is_wrapped_in_the_jwt_that_its_brokers_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Credentials:
        token, expiry, service_account_email = "", EXPIRES, "job@project"

        def __init__(self, scopes: list[str]) -> None:
            self.scopes = scopes

        def refresh(self, _request: object) -> None:
            self.token = " ".join(self.scopes)

    stand_in(monkeypatch, "google.auth", default=lambda scopes: (Credentials(scopes), "project"))
    stand_in(monkeypatch, "google.auth.transport")
    stand_in(monkeypatch, "google.auth.transport.requests", Request=object)
    token, expires_at = google.kafka_token("bootstrap.demo.europe-west1.managedkafka.project.cloud.goog:9092")
    assert expires_at == EXPIRES.replace(tzinfo=UTC).timestamp()
    head, claims, access = (base64.urlsafe_b64decode(each + "==") for each in token.split("."))
    assert json.loads(head)["alg"] == "GOOG_OAUTH2_TOKEN"
    assert (
        json.loads(claims).items() >= {"sub": "job@project", "exp": int(expires_at), "scope": "kafka"}.items()
    )
    assert access == b"https://www.googleapis.com/auth/cloud-platform"
    assert google.postgres_password("h", 5432, "u") == "https://www.googleapis.com/auth/sqlservice.login"
