"""A file that cannot be written is named, with what to do, before the long work begins where that can be known."""

import grp
import os
import pwd
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from publisher.cli import app
from service.errors import SettingsError
from service.private_file import check_writable, others_may_write, write_private


@pytest.mark.parametrize(
    "place", ["", "missing/report", "file/report"], ids=["folder", "no folder", "below a file"]
)
def test_a_file_that_cannot_be_written_is_known_before(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("kept")
    for refuses in (check_writable, lambda path, option: write_private(path, "text", option)):
        with pytest.raises(
            SettingsError, match=r"--report '.*cannot be written: .*Name a file in a folder"
        ) as raised:
            refuses(tmp_path / place, "--report")
        assert str(tmp_path / place) in str(raised.value)


def test_the_look_leaves_nothing_behind_and_changes_nothing(tmp_path: Path) -> None:
    new, old, pipe, link = (tmp_path / name for name in ("new", "old", "pipe", "link"))
    old.write_text("kept")
    os.mkfifo(pipe)
    link.symlink_to("beyond")
    for path in (new, old, pipe, link, Path("/dev/null")):
        check_writable(path, "--report")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["link", "old", "pipe"]
    assert link.is_symlink()
    assert old.read_text() == "kept"


def test_a_full_disk_is_named() -> None:
    check_writable(Path("/dev/full"), "--report")
    with pytest.raises(
        SettingsError, match="--report '/dev/full' cannot be written: No space left on device"
    ):
        write_private(Path("/dev/full"), "text", "--report")


@pytest.mark.parametrize("options", [["--report"], ["--kafka", "--state"], ["--kafka", "--keys-file"]])
def test_an_audit_does_not_begin_with_a_file_that_it_cannot_write(options: list[str], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    named = str(tmp_path / "file" / "below")
    # No Postgres is there: the look comes first.
    found = CliRunner().invoke(app, ["audit", *options, named])
    assert isinstance(found.exception, SettingsError)
    assert named in str(found.exception)


def test_a_full_disk_behind_standard_output_is_no_traceback() -> None:
    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "publisher", "--version"], stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert ended.returncode == 6
    assert ended.stderr == (
        b"publisher: standard output cannot be written: No space left on device. Make room there and run the command again; what it has "
        b"changed stays changed\n"
    )


@pytest.mark.parametrize(
    ("mode", "group", "members", "may"),
    [
        (0o600, "users", [], False),
        (0o644, "users", [], False),
        (0o664, "users", [], True),
        (0o664, "me", [], False),
        (0o664, "me", ["me"], False),
        (0o664, "me", ["somebody"], True),
        (0o664, None, [], True),
        (0o646, "me", [], True),
    ],
)
def test_others_may_write_where_everybody_may_or_a_group_with_others(
    monkeypatch: pytest.MonkeyPatch, mode: int, group: str | None, members: list[str], may: bool
) -> None:
    """With a umask of 0002, all files of a user are writable for the group that bears the user's name."""

    def group_of(number: int) -> grp.struct_group:
        if group is None:
            raise KeyError(number)
        return grp.struct_group((group, "x", number, members))

    monkeypatch.setattr(os, "geteuid", lambda: 4_711)
    monkeypatch.setattr(
        pwd, "getpwuid", lambda user: pwd.struct_passwd(("me", "x", user, 4_711, "", "/", "/"))
    )
    monkeypatch.setattr(grp, "getgrgid", group_of)
    assert others_may_write(status(mode, 4_711, 4_711)) is may


@pytest.mark.parametrize(
    ("mode", "user", "group", "may"),
    [
        (0o644, 0, 0, False),
        (0o664, 0, 0, False),
        (0o440, 0, 2_000, False),
        (0o644, 4_712, 4_712, True),
        (0o666, 0, 0, True),
    ],
    ids=["a ConfigMap's", "an image's", "a ConfigMap's with fsGroup", "another user's", "everybody's"],
)
def test_what_root_has_put_there_is_trusted(
    monkeypatch: pytest.MonkeyPatch, mode: int, user: int, group: int, may: bool
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 4_711)
    assert others_may_write(status(mode, user, group)) is may


def status(mode: int, user: int, group: int) -> os.stat_result:
    return os.stat_result((stat.S_IFREG | mode, 0, 0, 1, user, group, 0, 0, 0, 0))
