"""What travels to another machine unprotected is named at the start, and nothing else is."""

import os
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr
from structlog.testing import capture_logs

from service.kafka.client import admin_client
from service.kafka.transport import SPARK_CHANNELS, name_open_cluster, name_unprotected, unprotected
from service.settings import (
    KafkaSettings,
    PostgresSettings,
    SchemaRegistrySettings,
    Settings,
)
from service.settings.console import ConsoleSettings
from service.settings.observability import TracingSettings
from service.settings.retention import RetentionSettings

PLAIN_REASON = "without TLS: anybody on the network path can read and change all traffic"
KAFKA, POSTGRES = "broker.example:9092", "postgresql://me:secret@db.example/outbox"
TLS: dict[str, Any] = {"security.protocol": "SASL_SSL"}
VERIFIED = f"{POSTGRES}?sslmode=verify-full"


def settings(kafka: str, options: dict[str, Any], dsn: str, registry: str = "") -> Settings:
    return Settings.model_construct(
        schema_registry=SchemaRegistrySettings(url=registry),
        kafka=KafkaSettings(bootstrap_servers=kafka, options=options),
        postgres=PostgresSettings(dsn=SecretStr(dsn)),
        retention=RetentionSettings(),
        console=ConsoleSettings(),
        tracing=TracingSettings(),
    )


@pytest.mark.parametrize(
    ("kafka", "options", "dsn", "found"),
    [
        (KAFKA, TLS, VERIFIED, []),
        (KAFKA, {}, VERIFIED, ["Kafka without TLS"]),
        (
            "localhost:1,broker.example:2",
            {"security.protocol": "SASL_PLAINTEXT"},
            VERIFIED,
            ["Kafka without TLS"],
        ),
        (KAFKA, TLS | {"enable.ssl.certificate.verification": False}, VERIFIED, ["Kafka with TLS that"]),
        (KAFKA, TLS | {"enable.ssl.certificate.verification": "f"}, VERIFIED, ["Kafka with TLS that"]),
        (KAFKA, TLS | {"ssl.endpoint.identification.algorithm": "none"}, VERIFIED, ["Kafka with TLS that"]),
        (KAFKA, TLS | {"ssl.endpoint.identification.algorithm": " none"}, VERIFIED, ["Kafka with TLS that"]),
        (KAFKA, {"security.protocol": " ssl"}, VERIFIED, []),
        ("[::1]:9092,127.0.0.2:1", {}, VERIFIED, []),
        ("10.0.0.1:9092", {}, VERIFIED, ["Kafka without TLS"]),
        (KAFKA, TLS, POSTGRES, ["Postgres without TLS"]),
        (KAFKA, TLS, f"{POSTGRES}?sslmode=require", ["Postgres with TLS that"]),
        (KAFKA, TLS, f"{POSTGRES}?sslrootcert=system", []),
        (
            KAFKA,
            TLS,
            f"{POSTGRES}?sslmode=require&sslrootcert=missing.pem",
            ["Postgres with TLS that does not"],
        ),
        (
            KAFKA,
            TLS,
            f"{POSTGRES}?sslmode=require&sslrootcert={__file__}",
            ["Postgres with TLS without host-name"],
        ),
        (
            KAFKA,
            TLS,
            f"{POSTGRES}?sslmode=verify-ca&sslrootcert=ca.pem",
            ["Postgres with TLS without host-name"],
        ),
        (KAFKA, TLS, f"{POSTGRES}?sslmode=verify-ca", ["Postgres with TLS without host-name"]),
        (KAFKA, TLS, "host=localhost,db.example dbname=outbox", ["Postgres without TLS"]),
        (KAFKA, TLS, "host=/run/postgresql dbname=outbox", []),
        (KAFKA, TLS, "postgresql:///outbox", []),
        (KAFKA, {}, POSTGRES, ["Kafka without TLS", "Postgres without TLS"]),
    ],
)
def test_each_server_is_named(
    kafka: str, options: dict[str, Any], dsn: str, found: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PGHOST", "PGHOSTADDR", "PGSERVICE", "PGSSLMODE", "PGSSLROOTCERT"):
        monkeypatch.delenv(name, raising=False)
    named = [f"{server} {why}" for server, _, why in unprotected(settings(kafka, options, dsn))]
    assert len(named) == len(found)
    assert all(text.startswith(wanted) for text, wanted in zip(named, found, strict=True))


@pytest.mark.parametrize(
    ("java", "found"),
    [
        ({"security.protocol": "PLAINTEXT"}, ["Kafka without TLS"]),
        ({"ssl.endpoint.identification.algorithm": ""}, ["Kafka with TLS that"]),
        ({"security.protocol": "SSL", "ssl.truststore.type": "PEM"}, []),
    ],
)
def test_what_spark_s_client_alone_is_told_counts_too(java: dict[str, str], found: list[str]) -> None:
    told = settings(KAFKA, TLS, VERIFIED)
    told = told.model_copy(update={"kafka": told.kafka.model_copy(update={"java_options": java})})
    named = [f"{server} {why}" for server, _, why in unprotected(told)]
    assert [text for text, expected in zip(named, found, strict=True) if not text.startswith(expected)] == []


@pytest.mark.parametrize(
    ("dsn", "environment", "found"),
    [
        ("service=plain", {}, True),
        ("service=verified", {}, False),
        ("service=verified sslmode=prefer", {}, True),
        ("service=local", {}, False),
        ("service=none", {}, False),
        ("dbname=outbox", {"PGSERVICE": "plain"}, True),
        ("dbname=outbox", {"PGHOST": "db.example"}, True),
        ("dbname=outbox", {"PGHOSTADDR": "192.0.2.1"}, True),
        ("host=localhost hostaddr=192.0.2.1", {}, True),
        ("host=db.example", {"PGSERVICE": "verified"}, False),
    ],
)
def test_a_server_that_the_environment_or_a_service_file_names_is_no_other(
    dsn: str, environment: dict[str, str], found: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "services"
    file.write_text(
        "[plain]\nhost=db.example\n[verified]\nhost=db.example\nsslmode=verify-full\n[local]\nhost=localhost\n"
    )
    for name in ("PGHOST", "PGHOSTADDR", "PGSERVICE", "PGSSLMODE", "PGSSLROOTCERT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PGSERVICEFILE", str(file))
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    before = dict(os.environ)
    assert [server for server, _, _ in unprotected(settings(KAFKA, TLS, dsn))] == ["Postgres"] * found
    assert dict(os.environ) == before


def test_every_login_and_the_collector_of_spans_count() -> None:
    other = SecretStr("postgresql://other.example/outbox")
    changed = settings(KAFKA, TLS, VERIFIED).model_copy(
        update={
            "retention": RetentionSettings(dsn=other),
            "console": ConsoleSettings(dsn=SecretStr(VERIFIED)),
            "tracing": TracingSettings(
                endpoint="http://me:secret@collector.example:4318/v1/traces?key=secret"
            ),
        }
    )
    assert [(server, address) for server, address, _ in unprotected(changed)] == [
        ("Postgres", "other.example:5432/outbox"),
        ("the collector of spans", "collector.example:4318"),
    ]


@pytest.mark.parametrize(("dsn", "found"), [(POSTGRES, ["db.example:5432/outbox"]), (VERIFIED, [])])
def test_a_consumer_s_database_counts_too(tmp_path: Path, dsn: str, found: list[str]) -> None:
    file = tmp_path / "dsn"
    file.write_text(dsn)
    console = ConsoleSettings(consumer_dsn_file=file)
    changed = settings(KAFKA, TLS, VERIFIED).model_copy(update={"console": console})
    assert [address for _, address, _ in unprotected(changed)] == found
    file.unlink()
    assert list(unprotected(changed)) == [], "its page says that the file is gone"


OIDC = TLS | {"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.method": "oidc"}
TOKENS = "sasl.oauthbearer.token.endpoint.url"
ISSUER = "bearer.auth.issuer.endpoint.url"


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("http://me:secret@login.example/token?key=secret", ["login.example:80"]),
        ("https://login.example/token", []),
        ("http://localhost:8080/token", []),
        ("http://169.254.169.254/metadata/identity/oauth2/token", []),
    ],
)
def test_servers_that_give_tokens_are_named(url: str, found: list[str]) -> None:
    kafka = settings(KAFKA, OIDC | {TOKENS: url}, VERIFIED)
    assert list(unprotected(kafka)) == [("Kafka's token endpoint", where, PLAIN_REASON) for where in found]
    java = settings(KAFKA, TLS, VERIFIED)
    java = java.model_copy(update={"kafka": java.kafka.model_copy(update={"java_options": {TOKENS: url}})})
    assert [address for _, address, _ in unprotected(java)] == found
    registry = SchemaRegistrySettings(url="https://registry.example", options={ISSUER: url})
    changed = settings(KAFKA, TLS, VERIFIED).model_copy(update={"schema_registry": registry})
    assert list(unprotected(changed)) == [
        ("the schema registry's token endpoint", where, PLAIN_REASON) for where in found
    ]


@pytest.mark.parametrize(
    ("url", "authority", "found"),
    [
        ("https://registry.example", False, ["with TLS that does not verify"]),
        ("http://registry.example", False, ["without TLS"]),
        ("https://registry.example", "ca.pem", []),
        ("https://localhost:8081", False, []),
    ],
)
def test_a_registry_that_nobody_verifies_is_named(url: str, authority: str | bool, found: list[str]) -> None:
    registry = SchemaRegistrySettings(url=url, options={"ssl.ca.location": authority})
    changed = settings(KAFKA, TLS, VERIFIED).model_copy(update={"schema_registry": registry})
    reasons = [why for server, _, why in unprotected(changed) if server == "the schema registry"]
    assert [why for why, start in zip(reasons, found, strict=True) if not why.startswith(start)] == []


@pytest.mark.parametrize(
    ("registry", "found"),
    [
        ("http://registry.example:8081", ["the schema registry"]),
        ("https://a.example,http://b.example", ["the schema registry"]),
        ("https://registry.example", []),
        ("http://localhost:8081,http://[::1]:8082", []),
    ],
)
def test_a_registry_is_named(registry: str, found: list[str]) -> None:
    assert [server for server, _, _ in unprotected(settings(KAFKA, TLS, VERIFIED, registry))] == found


@pytest.mark.parametrize(
    ("endpoint", "found"),
    [
        ("http://s3.example:9000", ["the archive"]),
        ("https://s3.example", []),
        ("http://127.0.0.1:9000", []),
        (None, []),
    ],
)
def test_an_archive_without_tls_is_named(endpoint: str | None, found: list[str]) -> None:
    retention = RetentionSettings(archive="s3://bucket", archive_endpoint=endpoint)
    changed = settings(KAFKA, TLS, VERIFIED).model_copy(update={"retention": retention})
    assert [server for server, _, _ in unprotected(changed)] == found


ON = SPARK_CHANNELS
SECRET = {"spark.authenticate.secret": "s"}
TRUSTS_ANY = {"spark.kubernetes.trust.certificates": "true"}


@pytest.mark.parametrize(
    ("master", "options", "found"),
    [
        ("spark://master.example:7077", {}, ["Spark's cluster"]),
        ("spark://master.example:7077", SECRET, ["Spark's cluster"]),
        ("spark://master.example:7077", ON, ["Spark's cluster"]),
        ("spark://master.example:7077", ON | SECRET | {"spark.authenticate": "false"}, ["Spark's cluster"]),
        ("spark://master.example:7077", ON | SECRET, []),
        ("spark://localhost:7077", {}, []),
        ("yarn", {}, ["Spark's cluster"]),
        ("yarn", ON | {"spark.network.crypto.enabled": "False"}, ["Spark's cluster"]),
        ("yarn", {"spark.authenticate": "true", "spark.network.crypto.enabled": "true"}, ["Spark's cluster"]),
        ("yarn", ON | {"spark.network.crypto.saslFallback": "true"}, ["Spark's cluster"]),
        ("yarn", ON | {"spark.network.crypto.cipher": "AES/CTR/NoPadding"}, ["Spark's cluster"]),
        ("yarn", ON | {"spark.network.crypto.cipher": "aes/gcm/nopadding"}, []),
        ("yarn", ON, []),
        ("k8s://https://api.example", {}, ["Spark's cluster"]),
        ("k8s://http://api.example", ON, ["the API server of Kubernetes"]),
        ("k8s://http://127.0.0.1:8001", ON, []),
        ("k8s://https://api.example", ON | TRUSTS_ANY, ["the API server of Kubernetes"]),
        ("local[4]", {}, []),
    ],
)
def test_a_spark_cluster_whose_connections_are_open_is_named(
    master: str, options: dict[str, str], found: list[str]
) -> None:
    with capture_logs() as logged:
        name_open_cluster(master, options)
    assert [line["server"] for line in logged] == found


def test_each_is_logged_once_and_a_client_logs_the_cluster_that_it_asks() -> None:
    told = settings(KAFKA, {}, POSTGRES)
    with capture_logs() as logged:
        admin_client(told.kafka)
        name_unprotected(told)
        admin_client(told.kafka)
    assert [(line["event"], line["server"]) for line in logged] == [
        ("connection_unprotected", "Kafka"),
        ("connection_unprotected", "Postgres"),
    ]


def test_the_environment_counts_and_no_secret_is_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    with capture_logs() as logged:
        name_unprotected(settings(KAFKA, TLS, POSTGRES))
        monkeypatch.setenv("PGSSLMODE", "verify-full")
        name_unprotected(settings(KAFKA, TLS, POSTGRES))
    assert [(line["event"], line["server"]) for line in logged] == [("connection_unprotected", "Postgres")]
    assert "secret" not in str(logged)
