"""A file gets its name only if what is read back is what Postgres gave."""

from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from unittest.mock import Mock
from uuid import UUID

import psycopg
import pytest

from publisher.archive.files import ArchiveDamagedError, data_name
from publisher.archive.folder import ArchiveFolder
from publisher.archive.manifest import DataFile
from publisher.archive.owner import ArchiveClaim
from publisher.archive.parquet import FileWriter, row_groups, table_of
from publisher.archive.verification import verified, verify
from publisher.archive.writing import described, remove_left
from publisher.protocol.stored_row import StoredRow
from service.errors import UnavailableError

_PARTITION = "session_output_p00000001"


def row(key: str, value: bytes) -> StoredRow:
    sessions = (["t"], [0], [1], [2], [3], [4], [5], [1])
    at = datetime(2026, 1, 31, tzinfo=UTC)
    return StoredRow(10_000, key, at, 0, 0, False, *sessions, ["out"], [value], None, None, None, None)


def write(folder: ArchiveFolder, *rows: StoredRow) -> DataFile:
    name = data_name("2026-01-31", _PARTITION, 0)
    with folder.create(name) as sink, FileWriter(sink) as writer:
        writer.write(table_of(rows))
        size, digest = writer.close()
    return described(name, size, digest, writer.contents)


@pytest.fixture
def folder(tmp_path: Path) -> ArchiveFolder:
    return ArchiveFolder(tmp_path, UUID(int=7))


def test_what_was_written_is_verified(folder: ArchiveFolder) -> None:
    verify(folder, write(folder, row("k", b"value")), Mock())


class ReadOnce(BytesIO):
    """As an object of a bucket is read."""

    def seekable(self) -> bool:
        return False


def test_what_can_be_read_once_is_parsed_from_the_copy_that_was_hashed(folder: ArchiveFolder) -> None:
    file = write(folder, row("k", b"value"))
    with folder.open(file.name) as source:
        content = source.read()
    with verified(ReadOnce(content), file) as found:
        assert [table.num_rows for table in row_groups(found)] == [1]
    for other in (content[:-1], content + b"\0", b""):
        with pytest.raises(ArchiveDamagedError, match="altered or cut"), verified(ReadOnce(other), file):
            pass


@pytest.mark.parametrize("change", ["flip", "cut", "add"])
def test_a_disk_that_gives_other_bytes_is_noticed(folder: ArchiveFolder, tmp_path: Path, change: str) -> None:
    file = write(folder, row("k", b"value"))
    path = tmp_path / f"outbox={UUID(int=7)}" / file.name
    content = bytearray(path.read_bytes())
    content[40] ^= change == "flip"
    path.write_bytes({"flip": content, "cut": content[:-1], "add": content + b"\0"}[change])
    with pytest.raises(ArchiveDamagedError, match="altered or cut"):
        verify(folder, file, Mock())


@pytest.mark.parametrize(
    "others", [[row("k", b"VALUE")], [row("l", b"value")], [], [row("k", b"value"), row("l", b"value")]]
)
def test_a_library_that_wrote_other_rows_is_noticed(folder: ArchiveFolder, others: list[StoredRow]) -> None:
    wanted = write(folder, row("k", b"value"))
    with folder.create(wanted.name) as sink, FileWriter(sink) as writer:
        writer.write(table_of(others))
        size, digest = writer.close()
    found = wanted.model_copy(update={"bytes": size, "sha256": digest})
    with pytest.raises(ArchiveDamagedError, match="is not what was written: other values, or rows"):
        verify(folder, found, Mock())


def test_a_file_that_cannot_be_finished_leaves_nothing(folder: ArchiveFolder) -> None:
    def fail() -> None:
        with (
            folder.create(data_name("2026-01-31", _PARTITION, 0)) as sink,
            FileWriter(sink) as writer,
        ):
            writer.write(table_of([row("k", b"value")]))
            raise OSError("full")

    with pytest.raises(OSError, match="full"):
        fail()
    assert folder.names() == []


def test_who_holds_the_partition_no_longer_removes_nothing(folder: ArchiveFolder) -> None:
    """Another process may have archived it since the files were listed: it was paused, and Postgres took it for gone."""
    file = write(folder, row("k", b"value"))
    claim = Mock(spec=ArchiveClaim, files=folder)
    lost = Mock()
    lost.execute.side_effect = psycopg.OperationalError("the connection is lost")
    with pytest.raises(psycopg.OperationalError):
        remove_left(lost, claim, _PARTITION)
    assert folder.names() == [file.name]
    again = write(folder, row("k", b"value"))
    assert again.name != file.name, "or it would remove the other's later"
    claim.require.side_effect = UnavailableError
    with pytest.raises(UnavailableError):
        remove_left(Mock(), claim, _PARTITION)
    assert len(folder.names()) == 2
    claim.require.side_effect = None
    remove_left(Mock(), claim, _PARTITION)
    assert folder.names() == []
