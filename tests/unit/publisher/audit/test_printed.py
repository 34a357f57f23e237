"""The command that an audit prints is, pasted into a shell, the one that mends."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from publisher.audit.findings import AuditReport, Check
from publisher.audit.readback.rows_to_send_again import shell_word
from publisher.cli import app
from publisher.commands import audit as command

KEYS = ["user:smile:7", "tab\there", "esc\x1b[31m", "[red]", "it's \\ \u202e\x85", "line\nend"]

FORGED = "topic/0/5/x\nclean"
"""The outbox-id of a record that anybody may have written to an output topic."""


def printed_words(text: str) -> list[str]:
    """The words that bash makes of a line."""
    bash = shutil.which("bash") or "bash"
    ended = subprocess.run([bash, "-c", f"printf '%s\\0' {text}"], capture_output=True, check=True)
    return ended.stdout.decode().split("\0")[:-1]


@settings(max_examples=30)
@given(st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"])))
def test_any_key_is_the_same_key_behind_the_shell_and_shows_on_a_terminal(key: str) -> None:
    assert shell_word(key).isprintable()
    assert printed_words(shell_word(key)) == [key]


def test_the_printed_command_names_the_lost_keys_themselves_and_the_settings_of_the_audit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mend = "publisher replay start " + " ".join(shell_word(f"--key={key}") for key in KEYS) + " --yes"
    lost = Check("lost", "?", examples=[f"session {KEYS[0]!r}", FORGED], count=2)
    report = AuditReport("uuid", 1, 1, 1, 1, [lost], {}, [mend])

    @contextmanager
    def database(*_: object) -> Iterator[None]:
        yield None

    monkeypatch.setattr(command, "database", database)
    monkeypatch.setattr(command, "load_settings", lambda _: SimpleNamespace(log=None))
    monkeypatch.setattr("service.observability.logs.configure", lambda _: None)
    monkeypatch.setattr(command, "run_audit", lambda *_: report)
    monkeypatch.chdir(tmp_path)
    Path("my settings.toml").write_text("", "utf-8")
    ended = CliRunner().invoke(app, ["audit", "--config", "my settings.toml"])
    assert ended.exit_code == 1, ended.output
    line = next(line for line in ended.stdout.splitlines() if line.startswith("publisher replay"))
    assert printed_words(line) == [
        *("publisher", "replay", "start"),
        *(f"--key={key}" for key in KEYS),
        *("--yes", "--config", str(tmp_path / "my settings.toml")),
    ]
    assert "lost: session 'user:smile:7'" in ended.stdout
    assert ended.stdout.splitlines()[-1] == "NOT clean"
    assert "clean" not in ended.stdout.splitlines()
