"""An erased key lives on nowhere in the archive, whatever is killed, and the archive stays proven."""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import psycopg
import pytest

from contract.cursor import Cursor
from db.connection import connect
from publisher.audit.findings import AuditReport
from publisher.erasure import erase
from publisher.erasure.archive_erasure import ArchiveErasure, archive_of
from publisher.replay.progress_record import ReplayProgress
from publisher.replay.store import ReplayLease
from service.lifecycle.fault_points import Action, Fault, FaultPlan
from service.settings import RetentionSettings, Settings
from tests.support.outbox.audits import counted, examples, failed, run_audit
from tests.support.outbox.batches import Outbox, simple
from tests.support.outbox.replays import die_before_the_commit, let_leases_run_out, make_replay, replay
from tests.support.processes.archiving import archived, files, read_archive
from tests.support.processes.erasing import appears, erase_process, erased, whole_dump
from tests.support.processes.publishers import settings_for
from tests.support.queries import query

AT_THE_KEY = "replay 1 ended its last transaction at the key: continue the replay or cancel it"


@pytest.fixture
def outbox(database: str) -> Outbox:
    """Without Kafka: what a publisher would have delivered counts as delivered."""
    return Outbox(database, "out")


@pytest.fixture
def settings(outbox: Outbox) -> Settings:
    return settings_for(outbox.dsn, "127.0.0.1:1")


def archive_failures(report: AuditReport) -> dict[str, int]:
    return {name: count for name, count in failed(report).items() if name.startswith("archive_")}


@pytest.fixture
def kept(outbox: Outbox, settings: Settings, folder: Path) -> Settings:
    """Two archived batches with the keys `forget-me` and others."""
    for batch in (1, 2):
        outbox.batch(simple(batch, 3) | simple(batch, 1, prefix="forget-me-"))
    return archived(outbox, settings, folder)


def contents(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in folder.rglob("*") if file.is_file())


def test_the_first_archive_that_retention_makes_meanwhile_is_looked_into(
    outbox: Outbox, settings: Settings, folder: Path
) -> None:
    for batch in (1, 2):
        outbox.batch(simple(batch, 1, prefix="forget-me-"))
    with psycopg.connect(outbox.dsn, autocommit=True, options="-c role=outbox_eraser") as eraser:
        opened = partial(archive_of, eraser, RetentionSettings())
        erasing = erase.Erasure(eraser, ["forget-me-0000"], archive=opened)
        archived(outbox, settings, folder)
        erasing.run(0)
    (left,) = erasing.keys["forget-me-0000"].left
    assert "the archive cannot be reached from here" in left


@pytest.mark.guarantee(186)
def test_nothing_of_a_key_is_left_and_the_audit_says_erased(
    outbox: Outbox, kept: Settings, folder: Path, tmp_path: Path
) -> None:
    assert appears(contents(folder), b"forget-me-0000")
    assert erased(kept, "forget-me-0000", "--dry-run")["keys"][0]["archived_rows"] == 2
    (of_key,) = erased(kept, "forget-me-0000")["keys"]
    assert (of_key["rows"], of_key["archived_rows"], of_key["left"]) == (0, 2, [])
    assert not appears(contents(folder), b"forget-me-0000")
    assert not appears(whole_dump(outbox.dsn), b"forget-me-0000")
    assert [row["session_key"] for row in read_archive(folder)] == ["k0000", "k0001", "k0002"] * 2
    assert query(outbox.dsn, "SELECT row_count, erased_rows FROM outbox.archived ORDER BY from_batch") == [
        (6, 2),
        (0, 0),
    ]
    # A reissue leaves out what an erased row stands for.
    assert query(outbox.dsn, "SELECT batch_id, outputs FROM outbox.erased ORDER BY 1") == [(1, [3]), (2, [3])]
    report = run_audit(kept, tmp_path, archive=True)
    assert archive_failures(report) == {}
    assert counted(report, "archived_rows") == 6
    assert erased(kept, "forget-me-0000")["keys"][0]["archived_rows"] == 0


@pytest.mark.guarantee(186)
def test_it_waits_for_the_lease_of_a_replay_whose_process_may_have_asked_for_the_commit(
    outbox: Outbox, kept: Settings
) -> None:
    die_before_the_commit(kept, make_replay(kept, from_archive=True), lease_s=3_600)

    (of_key,) = erased(kept, "forget-me-0000", code=1)["keys"]

    assert of_key["archived_rows"] == 0
    assert of_key["left"][0].startswith("replay 1 reads the archive")
    let_leases_run_out(outbox.dsn)
    assert erased(kept, "forget-me-0000")["keys"][0]["archived_rows"] == 2


def stand_at(dsn: str, key: str, state: str) -> None:
    """Let replay 1 have ended its last transaction at the key, and given its lease back."""
    query(
        dsn,
        "UPDATE outbox.replay SET state = %s, cursor_batch = 1, cursor_key = %s, lease_holder = NULL, lease_until = NULL,"
        " lease_backend_pid = NULL",
        state,
        key,
    )


@pytest.mark.guarantee(186)
def test_a_replay_that_is_cancelled_while_the_erasure_waits_for_it_forgets_the_key(
    outbox: Outbox, kept: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_replay(kept, from_archive=True)
    stand_at(outbox.dsn, "forget-me-0000", "paused")

    def cancel(_: float) -> None:
        query(outbox.dsn, "UPDATE outbox.replay SET state = 'cancelled'")

    monkeypatch.setattr(erase, "time", SimpleNamespace(monotonic=time.monotonic, sleep=cancel))
    (of_key,) = erased(kept, "forget-me-0000", "--wait", "60")["keys"]
    assert (of_key["archived_rows"], of_key["left"]) == (2, [])
    assert not appears(whole_dump(outbox.dsn), b"forget-me-0000")


@pytest.mark.guarantee(186)
@pytest.mark.parametrize(("state", "code"), [("cancelled", 0), ("paused", 1)])
def test_a_cursor_that_a_replay_writes_while_the_archive_is_rewritten_is_found(
    outbox: Outbox, kept: Settings, monkeypatch: pytest.MonkeyPatch, state: str, code: int
) -> None:
    make_replay(kept, from_archive=True)
    run: Callable[..., object] = ArchiveErasure.run

    def overtaken(*arguments: object) -> object:
        done = run(*arguments)
        stand_at(outbox.dsn, "forget-me-0000", state)
        return done

    monkeypatch.setattr(ArchiveErasure, "run", overtaken)
    (of_key,) = erased(kept, "forget-me-0000", code=code)["keys"]
    assert (of_key["archived_rows"], of_key["left"]) == (2, [AT_THE_KEY] if code else [])
    assert appears(whole_dump(outbox.dsn), b"forget-me-0000") == bool(code)


@pytest.mark.guarantee(186)
def test_a_process_that_was_frozen_after_its_commit_may_record_it_after_the_row_was_erased(
    outbox: Outbox, kept: Settings
) -> None:
    replay_id = make_replay(kept, from_archive=True)
    with connect(kept.postgres, "a test", autocommit=True) as frozen:
        lease = ReplayLease.claim(frozen, replay_id, "a test", 3_600, paused_too=False)
        assert lease is not None
        let_leases_run_out(outbox.dsn)
        assert erased(kept, "forget-me-0000")["keys"][0]["archived_rows"] == 2
        ((outbox_uuid, replay_uuid, archive_id),) = query(
            outbox.dsn,
            "SELECT i.outbox_uuid, r.replay_uuid, a.archive_id FROM outbox.identity i, outbox.replay r, outbox.archived a"
            " WHERE a.from_batch = 0",
        )
        sent = ReplayProgress(
            outbox_uuid, "cluster", replay_uuid, 1, Cursor(1, "forget-me-0000"), archive_id, 1, 3, 0, {}
        )
        assert lease.mirror(frozen, sent, None) == "running"
        assert replay(kept, "pause", "1").exit_code == 0
        lease.release(frozen, None, may_be_open=False)
    assert erased(kept, "forget-me-0000", code=1)["keys"][0]["left"] == [AT_THE_KEY]
    assert replay(kept, "cancel", "1").exit_code == 0
    assert erased(kept, "forget-me-0000")["keys"][0]["left"] == []
    assert not appears(whole_dump(outbox.dsn), b"forget-me-0000")


@pytest.mark.guarantee(186)
@pytest.mark.parametrize("point", ["archive.before_rewrite", "archive.after_rewrite"])
def test_a_killed_erasure_is_finished_by_the_next_one(
    outbox: Outbox, kept: Settings, folder: Path, tmp_path: Path, point: str
) -> None:
    plan = FaultPlan(tmp_path / "faults.json")
    plan.write(Fault(point, Action.KILL))
    killed = erase_process(kept, "forget-me-0000", fault_file=plan.file)
    assert killed.returncode == -9, killed.stderr
    report = run_audit(kept, tmp_path, archive=True)
    assert archive_failures(report) == {}
    assert "session_output_p00000000" in examples(report, "archive_garbage")
    finished = erase_process(kept, "forget-me-0000")
    assert finished.returncode == 0, finished.stderr
    assert not appears(contents(folder), b"forget-me-0000")
    assert len(files(folder)) == 4
    assert archive_failures(run_audit(kept, tmp_path, archive=True)) == {}


def test_a_manifest_that_is_gone_keeps_no_garbage_of_other_partitions(
    outbox: Outbox, kept: Settings, folder: Path, tmp_path: Path
) -> None:
    plan = FaultPlan(tmp_path / "faults.json")
    plan.write(Fault("archive.after_rewrite", Action.KILL))
    assert erase_process(kept, "forget-me-0000", fault_file=plan.file).returncode == -9
    assert appears(contents(folder), b"forget-me-0000")
    (other,) = (
        each for each in files(folder) if "session_output_p00000001-" in each and each.endswith(".json")
    )
    next(folder.rglob(Path(other).name)).unlink()
    (of_key,) = erased(kept, "another", code=1)["keys"]
    assert "left in the archive" in of_key["left"][-1]
    assert not appears(contents(folder), b"forget-me-0000")


@pytest.mark.guarantee(186)
def test_what_a_killed_retention_has_left_is_erased_too(
    outbox: Outbox, settings: Settings, folder: Path, tmp_path: Path
) -> None:
    outbox.batch(simple(1, 3))
    with pytest.raises(AssertionError, match="-9"):
        archived(outbox, settings, folder, fault=Fault("archive.after_file", Action.KILL))
    assert appears(contents(folder), b"k0001")
    with_archive = settings.model_copy(update={"retention": RetentionSettings(archive=f"file://{folder}")})
    (of_key,) = erased(with_archive, "k0001")["keys"]
    assert (of_key["rows"], of_key["left"]) == (1, [])
    assert not appears(contents(folder), b"k0001")


@pytest.mark.guarantee(186)
def test_files_of_a_partition_that_was_dropped_without_them_are_named(
    outbox: Outbox, settings: Settings, folder: Path
) -> None:
    outbox.batch(simple(1, 3))
    with pytest.raises(AssertionError, match="-9"):
        archived(outbox, settings, folder, fault=Fault("archive.after_file", Action.KILL))
    query(outbox.dsn, "SELECT outbox.drop_partition('session_output_p00000000')")
    with_archive = settings.model_copy(update={"retention": RetentionSettings(archive=f"file://{folder}")})
    (of_key,) = erased(with_archive, "k0001", code=1)["keys"]
    assert "1 files in the archive may have the key" in of_key["left"][0]
    (left,) = (each for each in folder.rglob("*.parquet"))
    assert left.name in of_key["left"][0]
    left.unlink()
    assert erased(with_archive, "k0001")["keys"][0]["left"] == []


def test_an_archive_that_cannot_be_reached_is_left(
    outbox: Outbox, kept: Settings, settings: Settings
) -> None:
    (of_key,) = erased(settings, "forget-me-0000", code=1)["keys"]
    assert "[retention] archive (OUTBOX_RETENTION__ARCHIVE) is not set here" in of_key["left"][0]
