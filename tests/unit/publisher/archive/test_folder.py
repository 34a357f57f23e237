"""Names and links lead nowhere else, and what is written is its owner's alone."""

import os
import stat
from pathlib import Path
from uuid import UUID

import pytest

from publisher.archive.files import OWNER, ArchiveDamagedError, FileMissingError, data_name, manifest_name
from publisher.archive.folder import ArchiveFolder
from service.errors import SettingsError

_UUID = UUID(int=7)
_PARTITION = "session_output_p00000001"
_NAME = data_name("2026-01-31", _PARTITION, 0)
_WRITING = f"_writing/{_PARTITION}-0000.tmp"


@pytest.fixture
def folder(tmp_path: Path) -> ArchiveFolder:
    return ArchiveFolder(tmp_path, _UUID)


def put(folder: ArchiveFolder, name: str, content: bytes = b"content") -> None:
    with folder.create(name) as file:
        file.write(content)


def test_what_is_written_gets_its_name_when_it_is_whole(folder: ArchiveFolder, tmp_path: Path) -> None:
    own = tmp_path / f"outbox={_UUID}"
    with folder.create(_NAME) as file:
        file.write(b"content")
        assert folder.names() == [_WRITING]
    put(folder, OWNER, b"ours")
    put(folder, OWNER, b"ours now")
    put(folder, manifest_name(_PARTITION, "f" * 64))
    assert folder.names() == sorted([_NAME, manifest_name(_PARTITION, "f" * 64)])
    with folder.open(_NAME) as file:
        assert file.read() == b"content"
    for path in own.rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600)
    with folder.open(OWNER) as file:
        assert file.read() == b"ours now"
    folder.remove([_NAME])
    with pytest.raises(FileMissingError), folder.open(_NAME):
        pass
    assert folder.names() == [manifest_name(_PARTITION, "f" * 64)]


def test_a_folder_that_a_kill_has_left_is_made_durable_by_whoever_uses_it(
    folder: ArchiveFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its name may be in memory alone: the kill may have come before the fsync."""
    (tmp_path / f"outbox={_UUID}" / "day=2026-01-31").mkdir(mode=0o700, parents=True)
    (tmp_path / f"outbox={_UUID}").chmod(0o700)
    synced: set[int] = set()

    def fsync(file: int) -> None:
        synced.add(os.fstat(file).st_ino)
        real(file)

    real = os.fsync
    monkeypatch.setattr(os, "fsync", fsync)
    put(folder, _NAME)
    assert {path.stat().st_ino for path in (tmp_path, tmp_path / f"outbox={_UUID}")} <= synced


@pytest.mark.parametrize(
    "name",
    [
        "/etc/passwd",
        "../secret",
        "day=2026-01-31/../../secret",
        f"day=2026-01-31/{_PARTITION}-0000-0123456789abcdef.parquet/x",
        f"day=2026-01-31/{_PARTITION}-0000-0123456789abcdef.parquet\n",
        f"day=2026-01-3\u0661/{_PARTITION}-0000-0123456789abcdef.parquet",
        "",
    ],
)
def test_another_form_of_name_is_refused(folder: ArchiveFolder, tmp_path: Path, name: str) -> None:
    (tmp_path / "secret").write_bytes(b"secret")
    put(folder, _NAME)
    with pytest.raises(ArchiveDamagedError), folder.open(name):
        pass
    with pytest.raises(ValueError, match="no name of a file"), folder.create(name):
        pass


@pytest.mark.parametrize("linked", ["", "day=2026-01-31", _NAME], ids=["the folder", "a day", "a file"])
def test_a_link_is_not_followed(folder: ArchiveFolder, tmp_path: Path, linked: str) -> None:
    put(folder, _NAME)
    own = tmp_path / f"outbox={_UUID}" / linked
    own.rename(tmp_path / "outside")
    own.symlink_to(tmp_path / "outside")
    with pytest.raises(ArchiveDamagedError, match=r"(which is|are) not followed"), folder.open(_NAME):
        pass


def test_a_name_that_is_taken_while_writing_is_replaced_and_not_written_through(
    folder: ArchiveFolder, tmp_path: Path
) -> None:
    (tmp_path / "outside").write_bytes(b"theirs")
    put(folder, _NAME)
    (tmp_path / f"outbox={_UUID}" / _WRITING).symlink_to(tmp_path / "outside")
    put(folder, _NAME, b"ours")
    assert (tmp_path / "outside").read_bytes() == b"theirs"
    with folder.open(_NAME) as file:
        assert file.read() == b"ours"


def test_the_root_must_be_there_and_must_not_be_everybodys(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="Mount it, or make the folder"):
        ArchiveFolder(tmp_path / "missing", _UUID)
    (tmp_path / "file").touch()
    with pytest.raises(SettingsError, match="is not a folder"):
        ArchiveFolder(tmp_path / "file", _UUID)
    tmp_path.chmod(0o777)
    with pytest.raises(SettingsError, match="everybody may write there"):
        ArchiveFolder(tmp_path, _UUID)


def test_a_folder_that_others_may_write_to_gets_no_session_keys(
    folder: ArchiveFolder, tmp_path: Path
) -> None:
    planted = tmp_path / f"outbox={_UUID}"
    planted.mkdir()
    planted.chmod(0o777)
    with pytest.raises(ArchiveDamagedError, match="others may write there"):
        put(folder, _NAME)
    planted.chmod(0o700)
    put(folder, _NAME)
