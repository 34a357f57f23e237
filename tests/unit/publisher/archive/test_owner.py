"""Only one database writes into an archive; a copy of it is told apart by what it is, by what it knows, or by its run."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest.mock import Mock
from uuid import UUID

import pytest

from publisher.archive import owner
from publisher.archive.catalogue import ArchivedPartition
from publisher.archive.files import OWNER, ArchiveDamagedError
from publisher.archive.folder import ArchiveFolder
from publisher.archive.manifest import Origin
from publisher.archive.owner import claim, require_owner
from service.errors import SettingsError, UnavailableError

_UUID = UUID(int=7)
_ORIGIN = Origin(system_identifier=1, database_oid=5, timeline=3)


def archived(number: int) -> ArchivedPartition:
    at = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=number)
    return ArchivedPartition(f"p{number}", 0, 1, UUID(int=number), b"", 0, 0, 0, 0, 0, at)


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> list[ArchivedPartition]:
    """What Postgres has of the archive."""
    found: list[ArchivedPartition] = []
    monkeypatch.setattr(owner, "read_catalogue", lambda _: found)
    return found


@pytest.fixture
def folder(tmp_path: Path, known: list[ArchivedPartition]) -> ArchiveFolder:
    return ArchiveFolder(tmp_path, _UUID)


def require(folder: ArchiveFolder, **another: int) -> None:
    require_owner(Mock(), folder, _UUID, _ORIGIN.model_copy(update=another))


def test_an_archive_of_before_is_claimed_by_the_first_that_writes(folder: ArchiveFolder) -> None:
    require(folder)
    claim(Mock(), folder, _UUID, _ORIGIN).require()
    require(folder)
    assert folder.names() == [], "it is no file of a partition"


@pytest.mark.parametrize(
    "another", [{"system_identifier": 2}, {"database_oid": 6}, {"timeline": 2}], ids=lambda a: next(iter(a))
)
def test_another_database_is_refused(folder: ArchiveFolder, another: dict[str, int]) -> None:
    claim(Mock(), folder, _UUID, _ORIGIN)
    with pytest.raises(
        SettingsError, match=r"of another database: of .*Only if the other one is gone for good"
    ):
        require(folder, **another)
    with pytest.raises(SettingsError, match="of outbox"):
        require_owner(Mock(), folder, UUID(int=8), _ORIGIN)


def test_after_a_failover_the_new_timeline_writes_and_the_left_one_is_refused(folder: ArchiveFolder) -> None:
    claim(Mock(), folder, _UUID, _ORIGIN)
    require(folder, timeline=4)
    claim(Mock(), folder, _UUID, _ORIGIN.model_copy(update={"timeline": 4}))
    with pytest.raises(SettingsError, match="timeline 4"):
        require(folder)


def test_a_copy_that_does_not_know_the_last_partition_is_refused(
    folder: ArchiveFolder, known: list[ArchivedPartition]
) -> None:
    known.append(archived(1))
    ours = claim(Mock(), folder, _UUID, _ORIGIN)
    require(folder)
    known.append(archived(2))
    ours.advance(UUID(int=2))
    require(folder)
    del known[-1]
    with pytest.raises(SettingsError, match="it is a copy, or was set back"):
        require(folder)


def test_a_kill_before_the_archive_was_told_is_mended_by_the_next_claim(
    folder: ArchiveFolder, known: list[ArchivedPartition]
) -> None:
    claim(Mock(), folder, _UUID, _ORIGIN)
    known += [archived(2), archived(1)]
    require(folder)
    claim(Mock(), folder, _UUID, _ORIGIN)
    del known[0]
    with pytest.raises(SettingsError, match="it is a copy"):
        require(folder)


def test_of_two_runs_the_first_one_stops(folder: ArchiveFolder) -> None:
    first = claim(Mock(), folder, _UUID, _ORIGIN)
    second = claim(Mock(), folder, _UUID, _ORIGIN)
    second.require()
    with pytest.raises(UnavailableError, match="another run writes"):
        first.require()
    folder.remove([OWNER])
    with pytest.raises(UnavailableError, match="was removed"):
        second.require()


@pytest.mark.parametrize("text", [b"", b"{}", b"null", b"x" * 100_000])
def test_a_file_that_cannot_be_read_is_damage(folder: ArchiveFolder, text: bytes) -> None:
    with folder.create(OWNER) as sink:
        sink.write(text)
    with pytest.raises(ArchiveDamagedError, match="cannot be read"):
        require(folder)


def test_a_run_that_slept_says_nothing_over_one_that_came_after(
    folder: ArchiveFolder, known: list[ArchivedPartition]
) -> None:
    slept = claim(Mock(), folder, _UUID, _ORIGIN)
    known += [archived(1), archived(2)]
    claim(Mock(), folder, _UUID, _ORIGIN)
    with pytest.raises(UnavailableError, match="has slept"):
        slept.advance(UUID(int=1))
    del known[1:]
    with pytest.raises(SettingsError, match="lacks the partition"):
        require(folder)
