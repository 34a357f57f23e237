"""A replay from the archive sends each event once, as the live delivery did, whatever dies or is erased meanwhile."""

from pathlib import Path

import pyarrow.parquet
import pytest

from contract.cursor import Cursor
from db.connection import connect
from devstack.kafka import KafkaServer
from devstack.topics import create_topics
from publisher.archive.opening import open_archive
from publisher.protocol.chunk_limits import ChunkLimits
from publisher.protocol.history_check import DeliveryPosition
from publisher.protocol.outgoing import Outgoing
from publisher.protocol.remediation import of_replay
from publisher.replay import store
from publisher.replay.archived import ArchiveReader
from service.lifecycle.fault_points import Action, Fault, FaultPlan
from service.settings import Settings
from tests.support.outbox.batches import Outbox, simple
from tests.support.outbox.deliveries import deliver
from tests.support.outbox.replays import ReplayProcess, assert_replayed, replay, replayed, seen_of
from tests.support.processes.archiving import archived, varied
from tests.support.processes.erasing import erased
from tests.support.queries import query
from tests.support.waiting import wait_until
from tests.support.watching import Watcher


@pytest.fixture
def small(settings: Settings) -> Settings:
    """Settings that make many transactions out of few rows."""
    publisher = settings.publisher.model_copy(update={"transaction_sessions": 4})
    return Settings.model_construct(postgres=settings.postgres, kafka=settings.kafka, publisher=publisher)


def filled(outbox: Outbox) -> None:
    for batch in range(1, 5):
        outbox.batch(simple(batch, keys=8) | (varied(batch * 1_000_000) if batch == 2 else {}))


@pytest.mark.guarantee(185)
def test_what_was_archived_is_sent_once_more_with_everything_that_it_had(
    outbox: Outbox, small: Settings, watcher: Watcher, folder: Path
) -> None:
    filled(outbox)
    deliver(small)
    settings = archived(outbox, small, folder, keep_ledger_s=60)
    ledger = "SELECT count(*) FROM outbox.batch WHERE batch_id < 5"
    assert query(outbox.dsn, ledger) == [(0,)], "its commit ids are not needed"
    done = replayed(settings, "start", "--all", "--from-archive", "--yes")
    assert (done["state"], done["events_sent"], done["from_archive"]) == ("done", len(outbox.written), True)
    assert_replayed(watcher, done["replay_uuid"], outbox.written)
    live = {(e.outbox_id, e.key, e.value): e for e in watcher.seen if "outbox-replay" not in dict(e.headers)}
    for event in watcher.seen:
        first = live[event.outbox_id, event.key, event.value]
        assert [h for h in event.headers if h[0] != "outbox-replay"] == list(first.headers)


def test_a_file_from_the_archive_is_the_file_that_was_written_before_the_drop(
    outbox: Outbox, small: Settings, folder: Path, tmp_path: Path
) -> None:
    filled(outbox)
    deliver(small)
    query(
        outbox.dsn,
        "INSERT INTO outbox.parked (session_key, batch_id, epoch, lane, lease_token, reason, detail, state, state_changed_at)"
        " SELECT o.session_key, o.batch_id, 1, o.lane, 1, 'too_large', 'test', 'discarded', now() FROM outbox.session_output o"
        " WHERE o.batch_id = 2 AND o.session_key = 'k0001'",
    )
    arguments = ("start", "--from-batch", "2", "--to-batch", "3", "--to-topic", f"{outbox.topic}=elsewhere")
    for name in ("before", "before.parquet"):
        assert replay(small, *arguments, "--to-file", str(tmp_path / name)).exit_code == 0
    settings = archived(outbox, small, folder)
    done = replayed(settings, *arguments, "--from-archive", "--to-file", str(tmp_path / "after"))
    assert done["events"] > 0
    assert (tmp_path / "after").read_bytes() == (tmp_path / "before").read_bytes()
    replayed(settings, *arguments, "--from-archive", "--to-file", str(tmp_path / "after.parquet"))
    # The helper has made the batches older meanwhile.
    tables = [
        pyarrow.parquet.read_table(tmp_path / f"{name}.parquet").drop_columns("committed_at")
        for name in ("before", "after")
    ]
    assert (tables[0].num_rows > 0, tables[0].equals(tables[1])) == (True, True)
    of_key = (*arguments, "--key", "k0003", "--from-archive", "--to-file", str(tmp_path / "key"))
    assert replayed(settings, *of_key)["events"] == 6
    assert (tmp_path / "key").read_bytes().count(b'"topic":"elsewhere"') == 6
    damaged, *_ = folder.glob("*/day=*/*p00000000*.parquet")
    plan = replayed(settings, "start", "--all", "--from-archive", "--dry-run")
    damaged.unlink()
    gone = replay(settings, "start", "--all", "--from-archive", "--to-file", str(tmp_path / "gone"))
    assert (plan["events"] > 0, getattr(gone.exception, "exit_code", None)) == (True, 5)
    assert not (tmp_path / "gone").exists()


def test_what_is_archived_can_be_sent_to_a_topic_of_another_name(
    outbox: Outbox, small: Settings, kafka: KafkaServer, topic_prefix: str, folder: Path
) -> None:
    filled(outbox)
    deliver(small)
    settings = archived(outbox, small, folder)
    other = f"{topic_prefix}other"
    create_topics(kafka.bootstrap_servers, {other: (3, {})})
    with Watcher(kafka.bootstrap_servers, other, tolerant=True) as watcher:
        arguments = ("--all", "--from-archive", "--to-topic", f"{outbox.topic}={other}", "--yes")
        done = replayed(settings, "start", *arguments)
        assert_replayed(watcher, done["replay_uuid"], outbox.written)


def test_filters_choose_out_of_the_archive(
    outbox: Outbox, small: Settings, watcher: Watcher, folder: Path
) -> None:
    filled(outbox)
    deliver(small)
    settings = archived(outbox, small, folder)
    done = replayed(settings, "start", "--key", "k0003", "--from-batch", "2", "--from-archive", "--yes")
    wanted = [event for event in outbox.written if event[0] == b"k0003"][3:]
    assert_replayed(watcher, done["replay_uuid"], wanted)
    plan = replayed(settings, "start", "--since", "30d", "--until", "2d", "--from-archive", "--dry-run")
    assert (plan["from_batch"], plan["events"]) == (1, len(outbox.written))
    nothing = replay(settings, "start", "--since", "2d", "--from-archive", "--dry-run")
    assert (nothing.exit_code, "nothing to send" in nothing.output) == (0, True)
    unknown = replay(settings, "start", "--key", "nobody", "--from-archive", "--yes")
    assert (unknown.exit_code, "'nobody' has no row" in unknown.output) == (1, True)


@pytest.mark.guarantee(185)
@pytest.mark.parametrize(
    "point", ["transaction.before_commit", "transaction.after_commit", "delivery.after_read"]
)
def test_kill_9_neither_loses_nor_repeats(
    outbox: Outbox, small: Settings, watcher: Watcher, folder: Path, tmp_path: Path, point: str
) -> None:
    filled(outbox)
    deliver(small)
    settings = archived(outbox, small, folder)
    plan = FaultPlan(tmp_path / "faults.json")
    plan.write(Fault(point, Action.KILL, hit=3))
    arguments = ("start", "--all", "--from-archive", "--yes")
    with ReplayProcess(settings, tmp_path / "log", *arguments, fault_file=plan.file) as process:
        assert process.wait() == -9, process.log()
    done = replayed(settings, "go-on", "1")
    assert (done["state"], done["events_sent"]) == ("done", len(outbox.written))
    assert_replayed(watcher, done["replay_uuid"], outbox.written)


@pytest.mark.guarantee(185)
def test_an_altered_file_stops_it_before_anything_of_the_file_is_sent(
    outbox: Outbox, small: Settings, watcher: Watcher, folder: Path
) -> None:
    filled(outbox)
    deliver(small)
    settings = archived(outbox, small, folder)
    (file,) = folder.glob("*/day=*/*p00000000*.parquet")
    with file.open("r+b") as content:
        content.seek(200)
        content.write(b"\x00\x01")
    result = replay(settings, "start", "--all", "--from-archive", "--yes")
    assert getattr(result.exception, "exit_code", None) == 5
    assert "it was altered or cut" in str(result.exception)
    assert seen_of(watcher, None) != []
    assert {name for event in watcher.seen for name, _ in event.headers} == {"outbox-id", "a", "b", "c"}


@pytest.mark.guarantee(186)
def test_an_erasure_waits_for_a_running_replay_and_a_paused_one_sends_nothing_of_the_key_after_it(
    outbox: Outbox, small: Settings, watcher: Watcher, folder: Path, tmp_path: Path
) -> None:
    filled(outbox)
    deliver(small)
    settings = archived(outbox, small, folder)
    # The lease must outlast the wait below.
    lasting = settings.publisher.model_copy(update={"lease_s": 120.0})
    settings = settings.model_copy(update={"publisher": lasting})
    plan = FaultPlan(tmp_path / "faults.json")
    plan.write(Fault("delivery.after_read", Action.HOLD, hit=2))
    arguments = ("start", "--all", "--from-archive", "--yes")
    with ReplayProcess(settings, tmp_path / "log", *arguments, fault_file=plan.file) as process:
        wait_until(lambda: not plan.pending(), "the second transaction")
        (of_key,) = erased(settings, "k0005", code=1)["keys"]
        assert of_key["archived_rows"] == 0
        assert "replay 1 reads the archive of batches 0 to 9999" in of_key["left"][0]
        assert replay(settings, "pause", "1").exit_code == 0
        plan.write()
        assert process.wait() == 0, process.log()
    sent = len([event for event in outbox.written if event[0] == b"k0005"]) // 4
    # Its last transaction ended at k0007, and that is where it continues.
    (at_cursor,) = erased(settings, "k0007", code=1)["keys"]
    at_key, of_archive = at_cursor["left"]
    assert at_key == "replay 1 ended its last transaction at the key: continue the replay or cancel it"
    assert "if it stands at the key's row" in of_archive
    (of_key,) = erased(settings, "k0005")["keys"]
    assert (of_key["archived_rows"], of_key["left"]) == (4, [])
    result = replay(settings, "go-on", "1", "--json")
    # The command says that fewer were sent than were counted.
    assert getattr(result.exception, "exit_code", None) == 5
    assert "rows were erased" in str(result.exception)
    ((uuid,),) = query(outbox.dsn, "SELECT replay_uuid FROM outbox.replay")
    others = [event for event in outbox.written if event[0] != b"k0005"]
    watcher.wait_until_all_read()
    seen = seen_of(watcher, str(uuid))
    assert len([event for event in seen if event[0] == b"k0005"]) <= sent
    assert [event for event in seen if event[0] != b"k0005"] != []
    assert sorted(event[2] for event in seen if event[0] != b"k0005") == sorted(event[2] for event in others)


@pytest.mark.guarantee(186)
def test_what_was_read_before_an_erasure_is_read_again_after_it(
    outbox: Outbox, small: Settings, folder: Path, tmp_path: Path
) -> None:
    """A replay that took longer to read than its lease lasts: nobody holds it when the erasure looks."""
    filled(outbox)
    deliver(small)
    settings = archived(outbox, small, folder)
    plan = FaultPlan(tmp_path / "faults.json")
    plan.write(Fault("replay.after_creation", Action.KILL))
    arguments = ("start", "--all", "--from-archive", "--yes")
    with ReplayProcess(settings, tmp_path / "log", *arguments, fault_file=plan.file) as process:
        assert process.wait() == -9, process.log()
    erasures: list[object] = []

    def renew(_: object) -> None:
        if not erasures:
            erasures.append(erased(settings, "k0007"))

    with connect(settings.postgres, "replay test", autocommit=True) as connection:
        found = store.load(connection, 1)
        archive = open_archive(connection, settings.retention, writing=False)
        outgoing = Outgoing(found.replay_uuid)
        reader = ArchiveReader(connection, archive, found, outgoing, of_replay(1), renew)
        chunk = reader.read(connection, DeliveryPosition(0, Cursor(0), None), ChunkLimits(1_000, 1_000_000))
    assert len(erasures) == 1
    assert {row.session_key for row in chunk.rows} == {
        *(f"k000{n}" for n in range(7)),
        "vari\u00e9",
        "without",
    }
