"""An audit continues from what it has written itself."""

import os
from pathlib import Path

import pytest

from publisher.audit.readback.state import AuditState, load, save
from service.errors import SettingsError


def test_the_state_of_another_user_or_of_another_audit_is_not_taken_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = {"outbox_uuid": "one"}
    assert load(tmp_path, asked) is None
    save(tmp_path, AuditState(asked, {}, 1, [], 1))
    found = load(tmp_path, asked)
    assert found is not None
    assert found.known_to == 1
    with pytest.raises(SettingsError, match="another audit"):
        load(tmp_path, {"outbox_uuid": "two"})
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(SettingsError, match="another user's"):
        load(tmp_path, asked)


def test_no_audit_begins_in_a_folder_that_another_user_may_write_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "state"
    assert load(folder, {}) is None
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(SettingsError, match="everybody may write to it"):
        load(folder, {})
    folder.chmod(0o700)
    assert load(folder, {}) is None
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(SettingsError, match="another user's"):
        load(folder, {})
