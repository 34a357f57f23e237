"""An outbox whose old outputs may be archived, and a folder for them."""

from pathlib import Path

import pytest

from tests.support.outbox.batches import Outbox
from tests.support.outbox.old_outputs import Command
from tests.support.processes.archiving import archive_settings, may_archive, old_outbox


@pytest.fixture
def old(database: str) -> Outbox:
    """Two partitions that are delivered and old, and one in use."""
    outbox = old_outbox(database)
    may_archive(database)
    return outbox


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The root of the archive."""
    folder = tmp_path / "archive"
    folder.mkdir(0o700)
    return folder


@pytest.fixture
def command(old: Outbox, folder: Path, tmp_path: Path) -> Command:
    """`publisher retention` that archives."""
    return Command(archive_settings(old.dsn, folder), tmp_path)
