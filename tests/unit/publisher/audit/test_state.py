"""An audit continues from what it has written itself."""

import os
import stat
from pathlib import Path

import pytest

from publisher.audit.readback import rows_to_send_again
from publisher.audit.readback.rows_to_send_again import LostRows
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
    with pytest.raises(SettingsError, match="others may write to it"):
        load(folder, {})
    folder.chmod(0o700)
    assert load(folder, {}) is None
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(SettingsError, match="another user's"):
        load(folder, {})


def test_no_audit_follows_another_users_link_to_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would replace `state.json` there, and remove it at its end: in any folder of this user's."""
    mine, link = tmp_path / "mine", tmp_path / "link"
    mine.mkdir(mode=0o700)
    link.symlink_to(mine)
    assert load(link, {}) is None
    lstat = os.lstat
    monkeypatch.setattr(
        os, "lstat", lambda path: os.stat_result([*lstat(path)[:4], os.getuid() + 1, *lstat(path)[5:]])
    )
    with pytest.raises(SettingsError, match="another user's"):
        load(link, {})


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\xff"])
def test_a_damaged_state_is_named(tmp_path: Path, content: bytes) -> None:
    tmp_path.chmod(0o700)
    (tmp_path / "state.json").write_bytes(content)
    with pytest.raises(SettingsError, match=r"state.json is damaged: .* Delete the directory"):
        load(tmp_path, {})


def test_what_is_lost_is_kept_in_a_file_of_its_owner_alone(tmp_path: Path) -> None:
    mask = os.umask(0)
    try:
        with LostRows(tmp_path):
            assert stat.S_IMODE((tmp_path / "lost.sqlite").stat().st_mode) == 0o600
    finally:
        os.umask(mask)


def test_keys_that_cannot_be_written_where_they_should_go_are_kept_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The audit has read for hours by then."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    named = rows_to_send_again._written(tmp_path / "missing" / "lost-keys.txt", "a\nb\n")
    assert named.name == "lost-keys.txt"
    assert named.read_text("utf-8") == "a\nb\n"
    assert [stat.S_IMODE(each.stat().st_mode) for each in (named.parent, named)] == [0o700, 0o600]
