"""`devstack psql` becomes psql, whose command line every user of the machine sees."""

import os
from types import SimpleNamespace
from typing import Any

import pytest

from devstack import commands
from devstack.processes.errors import DevstackError
from devstack.stack import POSTGRES_VARIABLE


@pytest.mark.guarantee(108)
@pytest.mark.parametrize(
    ("dsn", "argument", "password"),
    [
        ("postgresql://me:hush%40@db/outbox", "user=me dbname=outbox host=db", "hush@"),
        ("user=me password=hush", "user=me", "hush"),
        ("postgresql://me@db/outbox?sslmode=require", "postgresql://me@db/outbox?sslmode=require", None),
    ],
)
def test_the_password_of_the_environments_dsn_stays_in_the_environment(
    dsn: str, argument: str, password: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    became: list[tuple[str, list[str], dict[str, str]]] = []
    monkeypatch.delenv("PGPASSWORD", raising=False)
    monkeypatch.setenv(POSTGRES_VARIABLE, dsn)
    monkeypatch.setattr(commands, "client_program", lambda name: name)
    monkeypatch.setattr(os, "execve", lambda *given: became.append(given))
    monkeypatch.setattr(os, "execv", lambda program, given: became.append((program, given, dict(os.environ))))
    context: Any = SimpleNamespace(args=["-c", "SELECT 1"])
    commands.psql(context)
    ((_, command, environment),) = became
    assert command == ["psql", argument, "-c", "SELECT 1"]
    assert environment.get("PGPASSWORD") == password


@pytest.mark.parametrize("option", ["sslpassword", "oauth_client_secret", "scram_client_key"])
def test_a_secret_without_a_place_in_the_environment_is_refused(
    option: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(POSTGRES_VARIABLE, f"user=me password=hush {option}=hush")
    context: Any = SimpleNamespace(args=[])
    with pytest.raises(DevstackError, match=f"has {option}, which other users") as refused:
        commands.psql(context)
    assert "hush" not in str(refused.value)


def test_what_is_no_dsn_is_refused_without_its_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(POSTGRES_VARIABLE, "postgresql://me:hush@[db")
    context: Any = SimpleNamespace(args=[])
    with pytest.raises(DevstackError) as refused:
        commands.psql(context)
    assert "hush" not in str(refused.value)
