"""What retention drops is in the archive first, whole and proven; whatever is cut off, nothing is dropped that is not."""

import signal
import stat
from pathlib import Path
from typing import Any
from uuid import UUID

import orjson
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from devstack.databases import PostgresServer
from publisher.archive import parquet, writing
from publisher.archive.files import OWNER
from publisher.retention.retention import run_once
from service.lifecycle.fault_points import Action, Fault, FaultPlan
from tests.support.outbox.batches import Outbox
from tests.support.outbox.old_outputs import Command, partitions, retention_settings
from tests.support.processes.archiving import STEPS, archive_settings, files, read_archive, stored_rows
from tests.support.queries import query
from tests.support.waiting import wait_until


@pytest.mark.guarantee(184)
def test_the_archive_has_every_row_as_postgres_had_it(old: Outbox, command: Command, folder: Path) -> None:
    stored = stored_rows(old.dsn, 19_999)
    assert len(stored) == 15
    days = dict(query(old.dsn, "SELECT batch_id, (created_at AT TIME ZONE 'UTC')::date FROM outbox.batch"))
    code, output = command.run("run", "--yes")
    assert (code, "archived before that: 15 rows" in output) == (0, True), output
    assert partitions(old.dsn)[0] == "2"
    archived = read_archive(folder)
    assert [{name: row[name] for name in stored[0]} for row in archived] == stored
    assert [str(row["day"]) for row in archived] == [str(days[row["batch_id"]]) for row in archived]

    def size(rows: list[dict[str, Any]]) -> int:
        return sum(len(value) for row in rows for value in row["values"] if value is not None)

    assert query(
        old.dsn,
        "SELECT from_batch, to_batch, row_count, sessions, outputs, output_bytes FROM outbox.archived ORDER BY 1",
    ) == [(0, 9_999, 11, 12, 31, size(stored[:11])), (10_000, 19_999, 4, 4, 12, size(stored[11:]))]
    for path in folder.rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path
    assert [name.split("/")[0].split("=")[0] for name in files(folder)] == ["_manifests"] * 3 + ["day"] * 3


@pytest.mark.guarantee(184)
@pytest.mark.parametrize(("point", "hit", "left"), STEPS)
def test_a_kill_at_any_step_drops_nothing_unproven_and_is_mended_by_the_next_run(
    old: Outbox, command: Command, folder: Path, point: str, hit: int, left: list[str]
) -> None:
    stored = stored_rows(old.dsn, 19_999)
    code, output = command.run("run", "--yes", fault=Fault(point, Action.KILL, hit=hit))
    assert code == -signal.SIGKILL, output
    assert partitions(old.dsn)[: len(left)] == left
    assert query(old.dsn, "SELECT count(*) FROM outbox.archived") == [(3 - len(left),)]
    code, output = command.run("run", "--yes")
    assert code == 0, output
    assert partitions(old.dsn)[0] == "2"
    archived = read_archive(folder)
    assert [{name: row[name] for name in stored[0]} for row in archived] == stored
    assert len(files(folder)) == 6, "what the kill has left is gone"


@pytest.mark.guarantee(184)
def test_a_full_disk_drops_nothing_and_the_next_run_with_space_archives_it(
    old: Outbox, folder: Path, tmp_path: Path
) -> None:
    """A limit on the size of files fails a write in its middle, as a full disk does."""
    code, output = Command(archive_settings(old.dsn, folder), tmp_path, most_file_bytes=4_096).run(
        "run", "--yes"
    )
    assert code == 6, output
    assert "session_output_p00000000 was not archived, so it stays" in output
    assert partitions(old.dsn)[0] == "0"
    assert query(old.dsn, "SELECT count(*) FROM outbox.archived") == [(0,)]
    assert Command(archive_settings(old.dsn, folder), tmp_path).run("run", "--yes")[0] == 0
    assert len(read_archive(folder)) == 15


def test_a_day_of_many_rows_is_several_files(
    old: Outbox, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = stored_rows(old.dsn, 19_999)
    # More than the four bytes that every file begins with.
    monkeypatch.setattr(writing, "_FILE_BYTES", 5)
    monkeypatch.setattr(parquet, "_GROUP_ROWS", 1)
    assert run_once(archive_settings(old.dsn, folder)).archived_rows == 15
    archived = read_archive(folder)
    assert [{name: row[name] for name in stored[0]} for row in archived] == stored
    assert len([name for name in files(folder) if name.startswith("day=")]) == 15


@pytest.mark.guarantee(184)
def test_nobody_changes_rows_between_their_archive_and_their_drop(
    old: Outbox, command: Command, folder: Path, tmp_path: Path
) -> None:
    """Not even the owner by hand, past every lock of ours."""
    with command.start("run", "--yes", fault=Fault("archive.after_manifest", Action.HOLD)) as process:
        plan = FaultPlan(tmp_path / "retention-faults.json")
        wait_until(lambda: plan.file.exists() and not plan.pending(), "the manifest")
        with (
            psycopg.connect(old.dsn, autocommit=True, options="-c lock_timeout=200") as owner,
            pytest.raises(psycopg.errors.LockNotAvailable),
        ):
            owner.execute("DELETE FROM outbox.session_output WHERE batch_id = 1")
        assert query(old.dsn, "SELECT count(*) FROM outbox.session_output WHERE batch_id = 1") == [(3,)]
        plan.write()
        output, _ = process.communicate(timeout=60)
    assert process.returncode == 0, output


def test_rows_that_the_archive_would_miss_keep_the_partition(old: Outbox, command: Command) -> None:
    query(old.dsn, "UPDATE outbox.session_output SET lane = 9 WHERE batch_id = 1 AND session_key = 'k0001'")
    code, output = command.run("run", "--yes")
    assert (code, "rows have a lane that no epoch has" in output) == (6, True), output
    assert partitions(old.dsn)[0] == "0"


def test_what_is_in_the_way_of_the_archive_is_refused_before_anything_is_dropped(
    old: Outbox, folder: Path, tmp_path: Path
) -> None:
    elsewhere = Command(archive_settings(old.dsn, folder / "not mounted"), tmp_path)
    code, output = elsewhere.run("run", "--yes")
    assert (code, "Mount it, or make the folder" in output) == (2, True), output
    folder.chmod(0o777)
    code, output = Command(archive_settings(old.dsn, folder), tmp_path).run("run", "--yes")
    assert (code, "everybody may write there" in output) == (2, True), output
    folder.chmod(0o700)
    ((uuid,),) = query(old.dsn, "SELECT outbox_uuid FROM outbox.identity")
    (tmp_path / "outside").mkdir()
    (folder / f"outbox={uuid}").symlink_to(tmp_path / "outside")
    code, output = Command(archive_settings(old.dsn, folder), tmp_path).run("run", "--yes")
    assert (code, "Links are not followed" in output) == (6, True), output
    assert list((tmp_path / "outside").iterdir()) == []
    query(old.dsn, "REVOKE SELECT ON outbox.session_output FROM outbox_retention")
    code, output = Command(archive_settings(old.dsn, folder), tmp_path).run("run", "--yes")
    assert (code, "GRANT SELECT ON outbox.session_output" in output) == (1, True), output
    query(old.dsn, "UPDATE outbox.identity SET system_identifier = 1")
    query(old.dsn, "GRANT SELECT ON outbox.session_output TO outbox_retention")
    code, output = Command(archive_settings(old.dsn, folder), tmp_path).run("run", "--yes")
    assert (code, "this is a copy" in output) == (2, True), output
    assert partitions(old.dsn)[0] == "0"


@pytest.mark.guarantee(184)
def test_the_folder_without_its_volume_is_not_filled(
    old: Outbox, command: Command, folder: Path, tmp_path: Path
) -> None:
    code, output = command.run("run", "--yes", fault=Fault("retention.after_drop", Action.KILL))
    assert (code, partitions(old.dsn)[0]) == (-signal.SIGKILL, "1"), output
    folder.rename(tmp_path / "the volume")
    folder.mkdir(0o700)
    code, output = command.run("run", "--yes")
    assert (code, "not the one that the last partition went into" in output) == (6, True), output
    assert partitions(old.dsn)[0] == "1"
    assert list(folder.iterdir()) == []
    ((failed,),) = query(old.dsn, "SELECT failed FROM outbox.retention")
    assert "nothing is dropped" in failed, "what the alert is about"
    folder.rmdir()
    (tmp_path / "the volume").rename(folder)
    code, output = command.run("run", "--yes")
    assert (code, partitions(old.dsn)[0]) == (0, "2"), output
    assert len(read_archive(folder)) == 15


@pytest.mark.guarantee(184)
def test_a_copy_of_the_database_does_not_write_into_the_archive_of_the_original(
    old: Outbox, command: Command, folder: Path, tmp_path: Path, postgres: PostgresServer
) -> None:
    name = str(conninfo_to_dict(old.dsn)["dbname"])
    copy = postgres.create_database(f"{name}_copy", template=name)
    try:
        code, output = command.run("run", "--yes", fault=Fault("retention.after_drop", Action.KILL))
        assert (code, partitions(old.dsn)[0]) == (-signal.SIGKILL, "1"), output
        copied = Command(archive_settings(copy, folder), tmp_path)
        code, output = copied.run("run", "--yes")
        assert (code, "another database: of the database with oid" in output) == (2, True), output
        assert partitions(copy)[0] == "0"
        code, output = command.run("run", "--yes")
        assert (code, len(read_archive(folder))) == (0, 15), output
        # A person knows that the original is gone.
        next(folder.glob(f"*/{OWNER}")).unlink()
        code, output = copied.run("run", "--yes")
        assert (code, partitions(copy)[0]) == (0, "2"), output
        assert len(read_archive(folder)) == 15
    finally:
        postgres.drop_database(f"{name}_copy")


@pytest.mark.guarantee(184)
def test_a_run_that_another_one_has_overtaken_drops_nothing(
    old: Outbox, command: Command, folder: Path, tmp_path: Path
) -> None:
    """Two copies that nothing tells apart, at the same time."""
    with command.start("run", "--yes", fault=Fault("archive.after_manifest", Action.HOLD)) as process:
        plan = FaultPlan(tmp_path / "retention-faults.json")
        wait_until(lambda: plan.file.exists() and not plan.pending(), "the manifest")
        (owner,) = folder.glob(f"*/{OWNER}")
        ours = orjson.loads(owner.read_bytes())
        owner.write_bytes(orjson.dumps(ours | {"run": str(UUID(int=1))}))
        plan.write()
        output, _ = process.communicate(timeout=60)
    assert (process.returncode, "another run writes" in output) == (6, True), output
    assert partitions(old.dsn)[0] == "0"
    assert query(old.dsn, "SELECT count(*) FROM outbox.archived") == [(0,)]


def test_only_a_partition_that_this_transaction_has_held_is_dropped_as_archived(old: Outbox) -> None:
    login = retention_settings(old.dsn).retention.dsn
    assert login is not None
    drop = (
        "SELECT outbox.drop_archived('session_output_p00000000', gen_random_uuid(), sha256(''), 0, 0, 0, 0)"
    )
    with psycopg.connect(login.get_secret_value(), autocommit=True) as retention:
        retention.execute("SELECT outbox.hold_partition('session_output_p00000000')")
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="was not held"):
            retention.execute(drop)
        with pytest.raises(psycopg.errors.UndefinedTable, match="batches may still come into it"):
            retention.execute("SELECT outbox.hold_partition('session_output_p00000002')")
        with pytest.raises(psycopg.errors.UndefinedTable):
            retention.execute("SELECT outbox.hold_partition('batch')")
    assert partitions(old.dsn)[0] == "0"


def test_an_archive_that_a_login_invents_is_in_the_operator_log(old: Outbox) -> None:
    query(old.dsn, "DELETE FROM outbox.operation")
    login = retention_settings(old.dsn).retention.dsn
    assert login is not None
    with psycopg.connect(login.get_secret_value()) as hostile:
        hostile.execute("SELECT outbox.hold_partition('session_output_p00000000')")
        hostile.execute(
            "SELECT outbox.drop_archived('session_output_p00000000', %s, sha256(''), 7, 7, 7, 7)",
            [UUID(int=1)],
        )
    assert query(
        old.dsn,
        "SELECT command, login = session_user, result ->> 'partition', result ->> 'rows', result ->> 'before',"
        " result ->> 'after' = encode(sha256(''), 'hex') FROM outbox.operation",
    ) == [("outbox.archived", True, "session_output_p00000000", "7", None, True)]
