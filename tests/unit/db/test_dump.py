"""`python -m db.dump` runs pg_dump, whose command line every user of the machine sees."""

import subprocess
from types import SimpleNamespace
from typing import Any

import pytest

from db import dump
from service.errors import SettingsError

Commands = list[tuple[list[str], dict[str, str]]]


@pytest.fixture(name="commands")
def _commands(monkeypatch: pytest.MonkeyPatch) -> Commands:
    """What was run, with its environment."""
    found: Commands = []

    def run(command: list[str], *, env: dict[str, str], **_: Any) -> SimpleNamespace:
        found.append((command, env))
        return SimpleNamespace(returncode=0, stdout="", stderr="")

    monkeypatch.setattr(dump, "pg_dump", lambda: "pg_dump")
    monkeypatch.setattr(subprocess, "run", run)
    return found


def test_the_password_is_in_the_environment_only(commands: Commands) -> None:
    dump.dump("host=h user=u password=hush")
    ((command, environment),) = commands
    assert "hush" not in " ".join(command)
    assert environment["PGPASSWORD"] == "hush"


@pytest.mark.parametrize("option", ["sslpassword", "oauth_client_secret", "scram_client_key"])
def test_another_secret_is_refused(option: str, commands: Commands) -> None:
    with pytest.raises(SettingsError, match=f"has {option}, which other users") as refused:
        dump.dump(f"host=h user=u password=hush {option}=hush")
    assert "hush" not in str(refused.value)
    assert commands == []
