"""No part of a password is ever printed, however the DSN around it is written."""

import traceback
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from psycopg.conninfo import conninfo_to_dict
from pydantic import BaseModel, SecretStr, ValidationError

from service.errors import SettingsError
from service.settings import (
    ConsoleSettings,
    JobSettings,
    KafkaSettings,
    PostgresSettings,
    RetentionSettings,
    SchemaRegistrySettings,
    TracingSettings,
    load_settings,
)
from service.settings.dsn import is_remote

ADDRESS = "db.example:5433/outbox"
# Each part of a password is found in a message, whatever it is cut at.
PARTS = st.lists(st.sampled_from(["s3cret", "@", "/", ":", "?", "#", "%", "%40", "&", "=", "[", "]", ",", " ", "\\", "'", "host=", "//"]),
                 min_size=1, max_size=9)  # fmt: skip
PASSWORDS = PARTS.map(lambda parts: "".join(parts) + "s3cret")


def shown(dsn: str) -> str:
    """What messages may show of a DSN: its address where it is accepted, else the refusal."""
    try:
        return PostgresSettings(dsn=SecretStr(dsn)).address()
    except ValidationError as error:
        return "\n".join(each["msg"] for each in error.errors())


@given(user=st.sampled_from(["u", "us3cret", "u@s3cret", "u/s3cret", ""]), password=PASSWORDS)
@example(user="u", password="p@ss3cret")
@example(user="u", password="pa/ss3cret")
@example(user="u", password="a@s3cret/db?application_name=x")
@example(user="u", password="a@s3cret,other")
@example(user="u", password="12345@s3cret")
def test_a_uri_is_read_as_it_was_meant_or_refused_without_its_text(user: str, password: str) -> None:
    for ending in ("", "?sslmode=require"):
        found = shown(f"postgresql://{user}:{password}@{ADDRESS}{ending}")
        assert found == ADDRESS or "s3cret" not in found
        # Nothing of it became host, port or database.
        assert found == ADDRESS or "not shown" in found


@pytest.mark.parametrize("from_file", [False, True], ids=["variable", "file"])
@pytest.mark.parametrize("section", ["POSTGRES", "CONSOLE", "RETENTION"])
@pytest.mark.parametrize(
    "password",
    ["s3cret@s3cret", "s3cret/s3cret", "@s3cret", "s3cret/", "s3cret@s3cret/s3cret", "s3cret/s3cret@s3cret"],
)
def test_a_refused_password_with_an_at_or_a_slash_is_not_shown_and_how_to_write_it_is(
    password: str, section: str, from_file: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    dsn = f"postgresql://us3cret:{password}@{ADDRESS}"
    if from_file:
        (tmp_path / "dsn").write_text(dsn, "utf-8")
        monkeypatch.setenv(f"OUTBOX_{section}__DSN_FILE", str(tmp_path / "dsn"))
    else:
        monkeypatch.setenv(f"OUTBOX_{section}__DSN", dsn)
    with pytest.raises(SettingsError) as refused:
        load_settings()
    assert "percent-encode user name and password: @ is %40, / is %2F" in str(refused.value)
    assert section.lower() in str(refused.value)
    # Nor by whoever prints the causes.
    assert "s3cret" not in "".join(traceback.format_exception(refused.value))


@given(user=st.text(min_size=1), password=st.text(min_size=1))
def test_any_user_and_password_can_be_written_percent_encoded(user: str, password: str) -> None:
    if "\0" in user + password:
        return
    encoded = [quote(text, safe="") for text in (user, password)]
    settings = PostgresSettings(dsn=SecretStr(f"postgresql://{encoded[0]}:{encoded[1]}@{ADDRESS}"))
    assert settings.address() == ADDRESS
    parts = conninfo_to_dict(settings.dsn.get_secret_value())
    assert (parts["user"], parts["password"]) == (user, password)


@pytest.mark.parametrize(
    "dsn",
    [
        "postgresql://u:s3cret",
        "postgresql://u:s3cret/db",
        "postgresql://u:s3cret,b/db",
        "postgresql://u@s3cret@h/db",
        "postgresql://h/db@s3cret",
        "postgresql://h/db?host=u:s3cret@h",
        "postgresql://h/db?user=u@s3cret",
        "postgresql+psycopg://u:s3cret@h/db",
        "jdbc:postgresql://h/db?user=u&password=s3cret",
        "mysql://u:s3cret@h/db",
        "host=u:s3cret@h dbname=db",
        "host=postgresql://u:s3cret@h/db",
        "hostaddr=u:s3cret@h",
        "dbname=postgresql://u:s3cret@h/db",
        "host=h port=s3cret",
        "host=h password=my s3cret",
        "host=h password='s3cret",
        "u:s3cret@h/db",
        "s3cret",
        "postgresql://u:p%s3cret@h/db",
        "postgresql://u:p\0s3cret@h/db",
        "postgresql://[s3cret/db",
    ],
)
@pytest.mark.parametrize("section", [PostgresSettings, ConsoleSettings, RetentionSettings])
def test_what_is_no_dsn_is_refused_without_its_text(
    dsn: str, section: type[PostgresSettings | ConsoleSettings | RetentionSettings]
) -> None:
    with pytest.raises(ValidationError) as refused:
        section(dsn=SecretStr(dsn))
    (error,) = refused.value.errors()
    assert "s3cret" not in error["msg"]
    assert "not shown" in error["msg"]


@pytest.mark.parametrize(
    ("dsn", "address"),
    [
        ("postgresql://u:p%40ss@h/db", "h:5432/db"),
        ("postgresql://u:a:b?c#d@[::1]:1/db", "::1:1/db"),
        ("postgresql:///db?host=/var/run/postgresql", "/var/run/postgresql:5432/db"),
        ("postgresql://%2Fvar%2Frun/db", "/var/run:5432/db"),
        ("host=@abstract dbname=db", "@abstract:5432/db"),
        (" host=h\ndbname='d b'\npassword='p@s/s' ", "h:5432/d b"),
        ("service=outbox", "service 'outbox' of the connection service file"),
        ("service=outbox host=h dbname=db", "h:5432/db"),
    ],
)
def test_every_other_dsn_is_accepted(dsn: str, address: str) -> None:
    assert shown(dsn) == address


def test_what_the_environment_names_is_shown_as_what_libpq_uses(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PGHOST", "db.example")
    monkeypatch.setenv("PGPORT", "6000")
    assert shown("dbname=outbox password=s3cret") == "db.example:6000/outbox"
    for name in ("PGHOST", "PGPORT"):
        monkeypatch.delenv(name)
    services = tmp_path / "services.conf"
    services.write_text("[outbox]\nhost=from.service\nport=7000\ndbname=box\npassword=s3cret\n", "utf-8")
    monkeypatch.setenv("PGSERVICEFILE", str(services))
    monkeypatch.setenv("PGSERVICE", "outbox")
    assert shown("user=me") == "from.service:7000/box"


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"], ids=["plain", "with a byte order mark"])
def test_files_are_read_with_and_without_a_byte_order_mark(
    mark: bytes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("pg.dsn").write_bytes(mark + b"postgresql://u:s3cret@db.example:5433/outbox\r\n")
    Path("token").write_bytes(mark + b"0123456789abcdef\r\n")
    Path("secret.toml").write_bytes(mark + b'"sasl.password" = "x"\r\n')
    Path("outbox.toml").write_bytes(
        mark
        + b"[postgres]\r\ndsn_file = 'pg.dsn'\r\n[console]\r\ndsn_file = 'pg.dsn'\r\ntoken_file = 'token'\r\n"
        b"[retention]\r\ndsn_file = 'pg.dsn'\r\n[kafka]\r\nsecret_options_file = 'secret.toml'\r\n"
    )
    settings = load_settings()
    assert settings.postgres.address() == ADDRESS
    assert settings.console.dsn == settings.retention.dsn == settings.postgres.dsn
    assert settings.console.token == SecretStr("0123456789abcdef")
    assert settings.kafka.client()["sasl.password"] == "x"


def test_a_file_in_another_encoding_is_named_without_its_text(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "pg.dsn"
    file.write_text("postgresql://u:s3cret@h/db", "utf-16")
    monkeypatch.setenv("OUTBOX_POSTGRES__DSN_FILE", str(file))
    with pytest.raises(SettingsError, match="cannot be read") as refused:
        load_settings()
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        (KafkaSettings, "bootstrap_servers", "broker:9092,user:s3cret@broker:9092"),
        (JobSettings, "master", "spark://user:s3cret@master:7077"),
        (SchemaRegistrySettings, "url", "https://user:s3cret@registry"),
        (SchemaRegistrySettings, "url", "http://first,http://user:s3cret/registry"),
        (SchemaRegistrySettings, "url", "http://[s3cret"),
        (TracingSettings, "endpoint", "http://user:s3cret/v1/traces"),
        (TracingSettings, "endpoint", "http://[s3cret/v1/traces"),
    ],
)
def test_an_address_that_is_logged_holds_no_login(section: type[BaseModel], key: str, value: str) -> None:
    with pytest.raises(ValidationError) as refused:
        section.model_validate({key: value})
    (error,) = refused.value.errors()
    assert "s3cret" not in error["msg"]
    assert "not shown" in error["msg"]


@pytest.mark.parametrize(
    ("host", "hostaddr", "remote"),
    [
        ("pg.example,localhost", ",127.0.0.1", True),
        ("pg.example", "127.0.0.1", False),
        ("localhost", "192.0.2.7", True),
        ("localhost,/run/postgresql", ",", False),
        ("", "", False),
        ("pg.example,localhost", "127.0.0.1,", False),
    ],
)
def test_a_host_is_its_address_or_without_one_its_name(host: str, hostaddr: str, remote: bool) -> None:
    assert is_remote({"host": host, "hostaddr": hostaddr}) is remote
