"""The files that an audit writes."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from publisher.cli import app
from publisher.commands import audit
from service.errors import SettingsError


def test_the_report_and_the_keys_may_lie_in_the_folder_of_the_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def begins(*_: Any) -> None:
        raise SettingsError("the audit begins")

    monkeypatch.setattr(audit, "check_options", begins)
    folder = tmp_path / "new"
    files = ["--report", str(folder / "report"), "--keys-file", str(folder / "keys")]
    found = CliRunner().invoke(app, ["audit", "--kafka", "--state", str(folder), *files])
    assert str(found.exception) == "the audit begins"
    assert list(folder.iterdir()) == []


def test_a_link_to_the_file_of_keys_is_not_followed_before_it_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever opens the file asks whose link it is: another user may have put it there."""
    asked = []

    def begins(*arguments: Any) -> None:
        asked.append(arguments[2].keys_file)
        raise SettingsError("the audit begins")

    monkeypatch.setattr(audit, "database", lambda *_: nullcontext())
    monkeypatch.setattr(audit, "run_audit", begins)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lost-keys.txt").symlink_to("ours")
    CliRunner().invoke(app, ["audit"])
    assert asked == [tmp_path / "lost-keys.txt"]
