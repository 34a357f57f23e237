"""Tombstones of archived rows: the job writes meanwhile, and no value follows its tombstone, whatever is killed or replayed."""

from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from devstack.kafka import KafkaServer
from devstack.topics import create_topics
from publisher.erasure import tombstones
from publisher.erasure.tombstones import Tombstone, TombstoneWriter
from service.lifecycle.fault_points import Action, Fault, FaultPlan
from service.settings import Settings
from tests.support.outbox.batches import Outbox, Session, simple
from tests.support.outbox.deliveries import deliver
from tests.support.outbox.replays import die_before_the_commit, let_leases_run_out, make_replay, replayed
from tests.support.processes.archiving import archived
from tests.support.processes.erasing import erase_process, erased
from tests.support.queries import query
from tests.support.reading import read_to_end

KEYS = ("forget-me", "and-me")
IN_TRANSACTION = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in transaction%%'"


@pytest.fixture
def compacted(kafka: KafkaServer, topic_prefix: str) -> str:
    """A compacted output topic."""
    name = f"{topic_prefix}compacted"
    create_topics(kafka.bootstrap_servers, {name: (1, {"cleanup.policy": "compact"})})
    return name


@pytest.fixture
def kept(outbox: Outbox, settings: Settings, compacted: str, folder: Path) -> Settings:
    """An archived batch, of which two keys have outputs in the compacted topic."""
    sessions = {
        key: [Session([b"one", b"two"], n, topics=[compacted] * 2, keys=[b"own " + key.encode(), None])]
        for n, key in enumerate(KEYS, 7)
    }
    outbox.batch(simple(1, keys=2) | sessions)
    deliver(settings)
    return archived(outbox, settings, folder)


@pytest.fixture
def newest(kafka: KafkaServer, compacted: str) -> Callable[[], dict[bytes | None, bytes | None]]:
    """Reads the newest value of each key in the compacted topic."""

    def newest() -> dict[bytes | None, bytes | None]:
        return {message.key(): message.value() for message in read_to_end(kafka.bootstrap_servers, compacted)}

    return newest


OF_BOTH: set[bytes | None] = {b"own forget-me", b"forget-me", b"own and-me", b"and-me"}


@pytest.mark.guarantee(186)
@pytest.mark.parametrize(("at_once", "transactions"), [(10_000, 1), (3, 2)])
def test_the_job_writes_while_tombstones_of_many_keys_are_written_in_groups(
    outbox: Outbox,
    kept: Settings,
    compacted: str,
    newest: Callable[[], dict[bytes | None, bytes | None]],
    monkeypatch: pytest.MonkeyPatch,
    at_once: int,
    transactions: int,
) -> None:
    sizes: list[int] = []
    write = TombstoneWriter._write

    def meanwhile(self: TombstoneWriter, producer: object, group: list[Tombstone]) -> None:
        with psycopg.connect(outbox.dsn, options="-c lock_timeout=1s") as job:
            job.execute("SELECT outbox.lock_writer()")
        assert query(outbox.dsn, IN_TRANSACTION) == [(0,)]
        sizes.append(len(group))
        write(self, producer, group)  # type: ignore[arg-type]

    monkeypatch.setattr(TombstoneWriter, "_write", meanwhile)
    monkeypatch.setattr(tombstones, "_AT_ONCE", at_once)

    of_keys = erased(kept, *KEYS, "--tombstones", compacted)["keys"]

    assert [(each["archived_rows"], each["tombstones"]) for each in of_keys] == [(1, 2), (1, 2)]
    assert (len(sizes), sum(sizes)) == (transactions, 4)
    assert newest() == dict.fromkeys(OF_BOTH)


def test_a_replay_that_blocks_the_erasure_has_no_tombstone_written(
    outbox: Outbox, kept: Settings, compacted: str, newest: Callable[[], dict[bytes | None, bytes | None]]
) -> None:
    die_before_the_commit(kept, make_replay(kept, from_archive=True), lease_s=3_600)
    (of_key,) = erased(kept, KEYS[0], "--tombstones", compacted, code=1)["keys"]
    assert (of_key["archived_rows"], of_key["tombstones"]) == (0, 0)
    assert None not in newest().values()
    let_leases_run_out(outbox.dsn)
    (of_key,) = erased(kept, KEYS[0], "--tombstones", compacted)["keys"]
    assert (of_key["archived_rows"], of_key["tombstones"]) == (1, 2)
    assert newest()[KEYS[0].encode()] is None


@pytest.mark.guarantee(186)
def test_a_replay_that_sends_the_row_after_its_tombstone_has_the_erasure_write_it_again(
    kept: Settings,
    compacted: str,
    newest: Callable[[], dict[bytes | None, bytes | None]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write = TombstoneWriter.write

    def overtaken(self: TombstoneWriter, wanted: list[Tombstone]) -> int:
        written = write(self, wanted)
        replayed(kept, "start", "--all", "--from-archive", "--accept-compacted", "--yes")
        return written

    with monkeypatch.context() as patched:
        patched.setattr(TombstoneWriter, "write", overtaken)
        (of_key,) = erased(kept, KEYS[0], "--tombstones", compacted, code=1)["keys"]
    assert of_key["archived_rows"] == 0
    assert of_key["left"][0].startswith("replay 1 reads the archive")
    assert newest()[KEYS[0].encode()] == b"two"

    (of_key,) = erased(kept, KEYS[0], "--tombstones", compacted)["keys"]

    assert of_key["archived_rows"] == 1
    assert newest()[KEYS[0].encode()] is None


@pytest.mark.guarantee(186)
def test_an_erasure_that_is_killed_after_its_tombstones_is_finished_by_the_next_one(
    kept: Settings, compacted: str, newest: Callable[[], dict[bytes | None, bytes | None]], tmp_path: Path
) -> None:
    plan = FaultPlan(tmp_path / "faults.json")
    plan.write(Fault("archive.after_tombstones", Action.KILL))
    killed = erase_process(kept, *KEYS, "--tombstones", compacted, fault_file=plan.file)
    assert killed.returncode == -9, killed.stderr
    assert newest() == dict.fromkeys(OF_BOTH)
    of_keys = erased(kept, *KEYS, "--tombstones", compacted)["keys"]
    assert [(each["archived_rows"], each["tombstones"]) for each in of_keys] == [(1, 2), (1, 2)]
    assert newest() == dict.fromkeys(OF_BOTH)
