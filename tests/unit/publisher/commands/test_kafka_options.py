"""A wrong option of Kafka's client ends each command that needs one with an explanation, before any server is asked."""

import pytest
from typer.testing import CliRunner

from publisher.cli import app
from service.errors import SettingsError


@pytest.mark.parametrize("command", [["resume", "--from", "mirror"], ["audit", "--kafka"]])
def test_an_option_that_the_client_does_not_know_is_named(
    command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTBOX_KAFKA__OPTIONS", '{"sasl.pasword": "s3cret"}')
    monkeypatch.setenv("OUTBOX_POSTGRES__DSN", "postgresql://127.0.0.1:1/none")
    error = CliRunner().invoke(app, command).exception
    assert isinstance(error, SettingsError)
    assert "sasl.pasword" in str(error)
    assert "s3cret" not in str(error)
