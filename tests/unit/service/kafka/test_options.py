"""One `[kafka]` section serves both clients: librdkafka, and Kafka's Java client inside Spark."""

from pathlib import Path
from typing import Any

import pytest

from service.errors import SettingsError
from service.settings import KafkaSettings

PLAIN: dict[str, str | int | float | bool] = {
    "sasl.mechanism": "PLAIN",
    "sasl.username": "me",
    "sasl.password": "s3cret",
}


def java(**kafka: Any) -> dict[str, str]:
    return KafkaSettings(**kafka).java()


def test_without_tls_and_sasl_the_java_client_is_told_nothing() -> None:
    assert java(options={"linger.ms": 5, "compression.type": "zstd", "statistics.interval.ms": 0}) == {}


@pytest.mark.guarantee(109)
@pytest.mark.parametrize(
    ("mechanism", "module"),
    [
        ("PLAIN", "plain.PlainLoginModule"),
        ("SCRAM-SHA-256", "scram.ScramLoginModule"),
        ("SCRAM-SHA-512", "scram.ScramLoginModule"),
    ],
)
@pytest.mark.parametrize("name", ["sasl.mechanism", "sasl.mechanisms"])
def test_a_password_for_librdkafka_is_the_java_clients_as_well(
    name: str, mechanism: str, module: str
) -> None:
    options = {
        "security.protocol": "sasl_plaintext",
        name: mechanism,
        "sasl.username": "me",
        "sasl.password": "s3cret",
    }
    assert java(options=options) == {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f'org.apache.kafka.common.security.{module} required username="me" password="s3cret";',
    }


def test_a_password_cannot_end_its_own_quotation() -> None:
    found = java(options={**PLAIN, "sasl.password": 'a"; b\\'})
    assert found["sasl.jaas.config"].endswith('password="a\\"; b\\\\";')


@pytest.mark.guarantee(109)
def test_certificates_reach_both_clients_on_other_machines_too(tmp_path: Path) -> None:
    authority, certificate, key = tmp_path / "ca.pem", tmp_path / "client.pem", tmp_path / "client.key"
    authority.write_text("AUTHORITY")
    certificate.write_text("CERTIFICATE")
    key.write_text("KEY")
    options: dict[str, str | int | float | bool] = {
        "security.protocol": "ssl",
        "ssl.ca.location": str(authority),
        "ssl.certificate.location": str(certificate),
        "ssl.key.location": str(key),
        "ssl.key.password": "s3cret",
        "ssl.endpoint.identification.algorithm": "none",
    }
    assert java(options=options) == {
        "security.protocol": "SSL",
        "ssl.endpoint.identification.algorithm": "",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": "AUTHORITY",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": "CERTIFICATE",
        "ssl.keystore.key": "KEY",
        "ssl.key.password": "s3cret",
    }
    assert KafkaSettings(options=options).portable_client() == {
        "bootstrap.servers": "localhost:9092",
        "security.protocol": "ssl",
        "ssl.ca.pem": "AUTHORITY",
        "ssl.certificate.pem": "CERTIFICATE",
        "ssl.key.pem": "KEY",
        "ssl.key.password": "s3cret",
        "ssl.endpoint.identification.algorithm": "none",
    }


@pytest.mark.parametrize("location", ["probe", "{folder}"])
def test_librdkafkas_other_places_of_authorities_stay(tmp_path: Path, location: str) -> None:
    place = location.format(folder=tmp_path)
    settings = KafkaSettings(options={"ssl.ca.location": place})
    assert settings.portable_client()["ssl.ca.location"] == place


def test_client_credentials_for_a_token_are_the_java_clients_as_well() -> None:
    options = {
        "security.protocol": "sasl_ssl",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": "job",
        "sasl.oauthbearer.client.secret": 's3"cret',
        "sasl.oauthbearer.scope": "kafka",
        "sasl.oauthbearer.token.endpoint.url": "https://login.example/token",
    }
    assert java(options=options) == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.login.callback.handler.class": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler",
        "sasl.oauthbearer.token.endpoint.url": "https://login.example/token",
        "sasl.jaas.config": (
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
            ' clientId="job" clientSecret="s3\\"cret" scope="kafka";'
        ),
    }


@pytest.mark.guarantee(108)
def test_no_option_shows_where_settings_are_shown() -> None:
    settings = KafkaSettings(
        options={**PLAIN, "sasl.password": "s3cret"}, java_options={"ssl.key.password": "s3cret"}
    )
    assert "s3cret" not in repr(settings)


def test_what_java_options_say_wins_and_reaches_the_java_client_alone() -> None:
    settings = KafkaSettings(
        options=PLAIN, java_options={"sasl.mechanism": "OAUTHBEARER", "fetch.max.bytes": "9"}
    )
    assert settings.java()["sasl.mechanism"] == "OAUTHBEARER"
    assert settings.java()["fetch.max.bytes"] == "9"
    assert settings.client()["sasl.mechanism"] == "PLAIN"
    assert "fetch.max.bytes" not in settings.client()


@pytest.mark.guarantee(108)
def test_a_password_out_of_a_file_reaches_both_clients_and_no_text(tmp_path: Path) -> None:
    file = tmp_path / "secret.toml"
    file.write_text('"sasl.password" = "s3cret"\n')
    settings = KafkaSettings(options={**PLAIN, "sasl.password": "old"}, secret_options_file=file)
    assert settings.client()["sasl.password"] == "s3cret"
    assert 'password="s3cret"' in settings.java()["sasl.jaas.config"]
    assert "s3cret" not in repr(settings)


@pytest.mark.parametrize(
    "content", [None, b"\xff", b'"sasl.password" "s3cret"\n'], ids=["missing", "no text", "no TOML"]
)
def test_a_file_of_secrets_that_cannot_be_read_is_a_wrong_setting(
    tmp_path: Path, content: bytes | None
) -> None:
    file = tmp_path / "secret.toml"
    if content is not None:
        file.write_bytes(content)
    settings = KafkaSettings(secret_options_file=file)
    for options in (settings.client, settings.java):
        with pytest.raises(
            SettingsError, match=r"\[kafka\] secret_options_file = '.*secret\.toml' cannot be read"
        ) as caught:
            options()
        assert "s3cret" not in str(caught.value)


def test_a_certificate_that_cannot_be_read_is_a_wrong_setting(tmp_path: Path) -> None:
    absent = str(tmp_path / "absent.pem")
    with pytest.raises(SettingsError, match=r"absent\.pem"):
        java(options={"ssl.certificate.location": absent, "ssl.key.location": absent})
