"""`publisher audit --archive` finds each thing that can be wrong with an archive."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from service.settings import Settings
from tests.support.outbox.audits import counted, examples, failed, publisher_command, run_audit
from tests.support.outbox.batches import Outbox
from tests.support.outbox.old_outputs import DAY_S, Command, retention_settings
from tests.support.processes.archiving import archive_settings, may_archive, old_outbox
from tests.support.processes.publishers import settings_for
from tests.support.queries import query


@pytest.fixture
def audited(old: Outbox, command: Command, folder: Path) -> Settings:
    """An outbox whose two old partitions are archived."""
    code, output = command.run("run", "--yes")
    assert code == 0, output
    # The batches were written by no publisher.
    query(old.dsn, "DELETE FROM outbox.lane")
    found = settings_for(old.dsn, "127.0.0.1:1")
    return found.model_copy(update={"retention": archive_settings(old.dsn, folder).retention})


def archive_failures(settings: Settings, folder: Path) -> dict[str, int]:
    found = failed(run_audit(settings, folder, archive=True))
    return {name: count for name, count in found.items() if name.startswith("archive_")}


def one(folder: Path, pattern: str) -> Path:
    return sorted(folder.glob(f"outbox=*/{pattern}"))[0]


def alter(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def replace_by_link(file: Path) -> None:
    file.rename(file.parent.parent / "elsewhere")
    file.symlink_to(file.parent.parent / "elsewhere")


def replace_by_pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def test_a_whole_archive_is_clean(audited: Settings, tmp_path: Path) -> None:
    report = run_audit(audited, tmp_path, archive=True)
    assert {name for name in failed(report) if name.startswith("archive_")} == set()
    assert counted(report, "archived_rows") == 15


@pytest.mark.guarantee(184)
@pytest.mark.parametrize("damage", [alter, Path.unlink, replace_by_link, replace_by_pipe])
@pytest.mark.parametrize("pattern", ["day=*/*.parquet", "_manifests/session_output_*.json"])
def test_a_file_that_is_not_the_one_that_was_recorded_is_named(
    audited: Settings, folder: Path, tmp_path: Path, pattern: str, damage: Callable[[Path], object]
) -> None:
    damage(one(folder, pattern))
    report = run_audit(audited, tmp_path, archive=True)
    assert failed(report).get("archive_intact") == 1
    assert "batches 0 to 9999: " in examples(report, "archive_intact")


def test_a_manifest_that_somebody_else_wrote_counts_for_nothing(
    audited: Settings, folder: Path, tmp_path: Path
) -> None:
    manifest = one(folder, "_manifests/session_output_*.json")
    text = manifest.read_text("utf-8")
    manifest.write_text(text.replace("day=", "day=../../../etc/", 1), "utf-8")
    assert archive_failures(audited, tmp_path) == {"archive_intact": 1}
    manifest.write_text(text + " " * 5_000_000, "utf-8")
    assert archive_failures(audited, tmp_path) == {"archive_intact": 1}
    manifest.write_text(text, "utf-8")
    assert archive_failures(audited, tmp_path) == {}


def test_what_was_dropped_without_an_archive_after_the_first_one_is_a_gap(
    database: str, folder: Path, tmp_path: Path
) -> None:
    outbox = old_outbox(database)
    may_archive(database)
    # The batches of the first partition are twenty days old, those of the second ten.
    assert (
        Command(archive_settings(database, folder, keep_s=15 * DAY_S), tmp_path).run("run", "--yes")[0] == 0
    )
    assert query(database, "SELECT to_batch FROM outbox.archived") == [(9_999,)]
    assert Command(retention_settings(database), tmp_path).run("run", "--yes")[0] == 0
    settings = settings_for(outbox.dsn, "127.0.0.1:1").model_copy(
        update={"retention": archive_settings(database, folder).retention}
    )
    report = run_audit(settings, tmp_path, archive=True)
    assert "batches 10000 to 19999 were dropped without an archive" in examples(report, "archive_gaps")


def test_counts_that_the_ledger_does_not_have_are_named(
    audited: Settings, old: Outbox, tmp_path: Path
) -> None:
    query(old.dsn, "UPDATE outbox.batch SET sessions = sessions + 1 WHERE batch_id = 2")
    assert archive_failures(audited, tmp_path) == {"archive_counts": 1}


def test_files_that_no_manifest_names_are_noted(audited: Settings, folder: Path, tmp_path: Path) -> None:
    left = one(folder, "day=*/*.parquet")
    left.with_name(left.name.replace("-0000-", "-0009-")).write_bytes(b"left")
    report = run_audit(audited, tmp_path, archive=True)
    assert archive_failures(audited, tmp_path) == {}
    assert "-0009-" in examples(report, "archive_garbage")


def test_the_command_needs_to_know_where_the_archive_is(audited: Settings, tmp_path: Path) -> None:
    without = audited.model_copy(
        update={"retention": retention_settings(audited.postgres.dsn.get_secret_value()).retention}
    )
    ended = publisher_command(without, "audit", "--archive")
    assert (ended.returncode, "OUTBOX_RETENTION__ARCHIVE" in ended.stderr) == (2, True)
