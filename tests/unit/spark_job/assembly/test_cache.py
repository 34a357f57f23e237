"""The open sessions on disk: what was kept is read back, and anything else is as if nothing were there."""

import errno
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from spark_job.assembly import cache, known_files
from spark_job.assembly.cache import SessionCache
from spark_job.assembly.known_files import KnownFiles
from spark_job.sessions.assembler import assemble
from spark_job.sessions.settings import AssemblySettings
from spark_job.sessions.state.open_state import OpenState
from spark_job.sessions.state.segments import Segment
from tests.support.histories.tasks import UUID, slice_of
from tests.support.reference.assembled import table
from tests.support.reference.model import Record

RULES = AssemblySettings()
FOLDER = Path(UUID, "id-0")


def record(offset: int, kind: str, key: str = "k") -> Record:
    value = orjson.dumps({"event_type": f"{kind}_event", "session_key": key, "n": offset})
    return Record(0, offset, offset, key, value)


def grown(state: OpenState, *records: Record) -> OpenState:
    return assemble(state, table(records, RULES), RULES).state


LARGE = grown(OpenState.empty(), *(record(at, "start", f"{at}") for at in range(20)))
LARGER = grown(LARGE, record(20, "entry", "3"), record(21, "start"))
"""The first chunk is the one of LARGE."""
OTHER = grown(OpenState.empty(), record(5, "start"))


def opened(root: Path) -> SessionCache:
    return SessionCache(str(root), UUID, slice_of())


def kept(root: Path, *states: OpenState) -> SessionCache:
    """A cache that has stored some states, each after the one before."""
    found, before = opened(root), set[str]()
    for state in states:
        found.store(state, before)
        assert found.problem == ""
        before = {state.digest}
    return found


def names(root: Path) -> set[str]:
    return {path.name for path in (root / FOLDER).iterdir()}


def closing(state: OpenState) -> list[list[bytes]]:
    """Every open session, ended: its payloads."""
    ends = [record(100 + at, "end", key) for at, key in enumerate(state.sessions.key.to_pylist())]
    return [session.raws() for session in assemble(state, table(ends, RULES), RULES).closed]


def test_what_was_kept_is_read_back_by_whoever_asks_for_its_digest(tmp_path: Path) -> None:
    kept(tmp_path, LARGE, LARGER)
    for state in (LARGE, LARGER):
        reader = opened(tmp_path)
        found = reader.load(state.digest)
        assert found is not None
        assert (found.digest, found.sessions.encoded) == (state.digest, state.sessions.encoded)
        assert closing(found) == closing(state)
        assert reader.problem == ""


def test_where_nothing_was_kept_nothing_is_found_and_nothing_is_wrong(tmp_path: Path) -> None:
    reader = opened(tmp_path)
    assert reader.load(LARGE.digest) is None
    assert reader.problem == ""
    kept(tmp_path, LARGE)
    assert reader.load(OTHER.digest) is None
    assert reader.problem == ""


def test_a_state_of_another_partition_or_outbox_is_not_looked_at(tmp_path: Path) -> None:
    kept(tmp_path, LARGE)
    assert SessionCache(str(tmp_path), UUID, slice_of(partition=1)).load(LARGE.digest) is None
    assert SessionCache(str(tmp_path), UUID.replace("7", "8"), slice_of()).load(LARGE.digest) is None


def one(folder: Path, suffix: str) -> Path:
    (found,) = folder.glob(f"*.{suffix}")
    return found


def flip_each(file: Path) -> None:
    file.write_bytes(bytes(byte ^ 0x55 for byte in file.read_bytes()))


def rewritten(file: Path, change: Callable[[bytes], bytes]) -> None:
    """With another content, whose checksum is right."""
    content = file.read_bytes()
    body = change(content[cache._HEAD_BYTES :])
    file.write_bytes(content[: len(cache._MAGIC)] + cache._hash([body]).encode() + body)


def name_a_file_elsewhere(folder: Path) -> None:
    chunk, state = one(folder, "events"), one(folder, "sessions")
    outside = "../../" + "x" * (len(chunk.name) - 6)
    (folder / outside).write_bytes(chunk.read_bytes())
    rewritten(state, lambda body: body.replace(chunk.name.encode(), outside.encode()))


def name_files_without_end(folder: Path) -> None:
    rewritten(one(folder, "sessions"), lambda _: b"[" * 100_000)


def name_nothing(folder: Path) -> None:
    rewritten(one(folder, "sessions"), lambda _: b"{}")


def forget_a_segment(folder: Path) -> None:
    rewritten(one(folder, "sessions"), lambda body: re.sub(rb'"segments":\[.*?\]\]', b'"segments":[]', body))


def count_wrong(folder: Path) -> None:
    rewritten(one(folder, "sessions"), lambda body: body.replace(b'"totals":[', b'"totals":[1'))


def swap_names(folder: Path) -> None:
    segment, chunk = one(folder, "segment").name.encode(), one(folder, "events").name.encode()
    rewritten(
        one(folder, "sessions"),
        lambda body: body.replace(segment, b"?").replace(chunk, segment).replace(b"?", chunk),
    )


def put_a_folder(folder: Path) -> None:
    one(folder, "sessions").unlink()
    (folder / f"{LARGE.digest}.sessions").mkdir()


def put_a_file(folder: Path) -> None:
    folder.rename(folder.with_name("moved"))
    folder.write_bytes(b"")


DAMAGES: dict[str, Callable[[Path], Any]] = {
    "segment emptied": lambda folder: one(folder, "segment").write_bytes(b""),
    "segment cut off": lambda folder: os.truncate(one(folder, "segment"), 300),
    "segment garbled": lambda folder: flip_each(one(folder, "segment")),
    "segment of another state": lambda folder: one(folder, "segment").write_bytes(
        one(another(folder) / FOLDER, "segment").read_bytes()
    ),
    "segment not named": forget_a_segment,
    "segment and chunk take each other's place": swap_names,
    "counts wrong": count_wrong,
    "nothing named": name_nothing,
    "table emptied": lambda folder: one(folder, "sessions").write_bytes(b""),
    "table cut off": lambda folder: os.truncate(one(folder, "sessions"), 100),
    "table cut off in its head": lambda folder: os.truncate(one(folder, "sessions"), 10),
    "table garbled": lambda folder: flip_each(one(folder, "sessions")),
    "table of another state": lambda folder: one(folder, "sessions").write_bytes(
        one(another(folder) / FOLDER, "sessions").read_bytes()
    ),
    "table of another format": lambda folder: one(folder, "sessions").write_bytes(
        one(folder, "sessions").read_bytes().replace(b"sessions 3\n", b"sessions 1\n")
    ),
    "table is a folder": put_a_folder,
    "chunk emptied": lambda folder: one(folder, "events").write_bytes(b""),
    "chunk cut off": lambda folder: os.truncate(one(folder, "events"), 100),
    "table names a file elsewhere": name_a_file_elsewhere,
    "table names files without end": name_files_without_end,
    "folder open to others": lambda folder: folder.chmod(0o755),
    "folder is a file": put_a_file,
}


def another(folder: Path) -> Path:
    root = folder.parents[1] / "another"
    kept(root, OTHER)
    return root


@pytest.mark.guarantee(39)
@pytest.mark.parametrize("wrote_it", [True, False], ids=["the process that wrote it", "another process"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_state_is_as_if_it_were_not_there_and_what_is_wrong_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str, wrote_it: bool
) -> None:
    kept(tmp_path, LARGE)
    DAMAGES[damage](tmp_path / FOLDER)
    if wrote_it:
        for path in (tmp_path / FOLDER).glob("*"):
            os.utime(path, (0, 0))  # the clock of some file systems stands for milliseconds
    else:
        monkeypatch.setattr(known_files, "KNOWN", KnownFiles())
    reader = opened(tmp_path)
    assert reader.load(LARGE.digest) is None
    assert str(FOLDER) in reader.problem


@pytest.mark.guarantee(39)
@pytest.mark.parametrize("suffix", ["sessions", "segment"])
@pytest.mark.parametrize("mask", [0x01, 0x80])
def test_any_damaged_byte_of_what_is_known_of_the_sessions_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str, mask: int
) -> None:
    """Events are compared when they are used (test_open_state)."""
    kept(tmp_path, OTHER)
    file = one(tmp_path / FOLDER, suffix)
    for at in range(file.stat().st_size):
        kept(tmp_path, OTHER)
        content = file.read_bytes()
        file.write_bytes(content[:at] + bytes([content[at] ^ mask]) + content[at + 1 :])
        monkeypatch.setattr(known_files, "KNOWN", KnownFiles())
        reader = opened(tmp_path)
        assert reader.load(OTHER.digest) is None, at
        assert reader.problem


@pytest.mark.parametrize("suffix", ["sessions", "segment", "events"])
def test_a_file_that_is_gone_is_as_if_nothing_were_there(tmp_path: Path, suffix: str) -> None:
    kept(tmp_path, LARGE)
    one(tmp_path / FOLDER, suffix).unlink()
    assert opened(tmp_path).load(LARGE.digest) is None


def test_a_damaged_state_is_kept_anew_once_it_was_found_again(tmp_path: Path) -> None:
    kept(tmp_path, LARGE)
    flip_each(one(tmp_path / FOLDER, "sessions"))
    assert opened(tmp_path).load(LARGE.digest) is None
    opened(tmp_path).store(LARGE, set())
    assert opened(tmp_path).load(LARGE.digest) is not None


def test_a_state_that_was_found_again_is_kept_also_where_a_slice_has_not_changed_it(tmp_path: Path) -> None:
    opened(tmp_path).store(LARGE, {LARGE.digest})
    found = opened(tmp_path).load(LARGE.digest)
    assert found is not None
    assert closing(found) == closing(LARGE)


def test_only_the_state_and_the_one_before_stay_with_their_events(tmp_path: Path) -> None:
    kept(tmp_path, OTHER, LARGE)
    (tmp_path / FOLDER / ".left.0").write_bytes(b"by a killed worker")
    kept(tmp_path, LARGE, LARGER)
    tables = {f"{LARGE.digest}.sessions", f"{LARGER.digest}.sessions"}
    assert {name for name in names(tmp_path) if name.endswith(".sessions")} == tables
    assert len(names(tmp_path) - tables) == 4, "they share the older chunk and the older segment"
    opened(tmp_path).store(OpenState.empty(), {LARGER.digest})
    assert {name for name in names(tmp_path) if name.endswith(".sessions")} == {f"{LARGER.digest}.sessions"}
    opened(tmp_path).store(OpenState.empty(), {""})
    assert names(tmp_path) == set()


def test_while_a_batch_is_committed_what_was_open_before_it_stays_too(tmp_path: Path) -> None:
    kept(tmp_path, OTHER, LARGE)
    opened(tmp_path).store(LARGER, {LARGE.digest, OTHER.digest})
    assert all(opened(tmp_path).load(state.digest) is not None for state in (OTHER, LARGE, LARGER))


def test_events_and_entries_that_are_kept_already_are_not_written_again(tmp_path: Path) -> None:
    kept(tmp_path, LARGE)
    before = {
        one(tmp_path / FOLDER, suffix): one(tmp_path / FOLDER, suffix).stat()
        for suffix in ("events", "segment")
    }
    reader = opened(tmp_path)
    found = reader.load(LARGE.digest)
    assert found is not None
    reader.store(grown(found, record(20, "entry", "3")), {LARGE.digest})
    assert {path: path.stat() for path in before} == before
    assert (
        len(list((tmp_path / FOLDER).glob("*.events")))
        == len(list((tmp_path / FOLDER).glob("*.segment")))
        == 2
    )


@pytest.mark.guarantee(110)
def test_only_the_owner_can_read_what_is_kept(tmp_path: Path) -> None:
    kept(tmp_path, LARGE)
    assert (tmp_path / FOLDER).stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / FOLDER).iterdir()} == {0o600}


@pytest.mark.guarantee(110)
def test_nothing_is_kept_in_a_folder_that_others_can_write_to(tmp_path: Path) -> None:
    (tmp_path / FOLDER).mkdir(mode=0o777, parents=True)
    (tmp_path / FOLDER).chmod(0o777)
    writer = opened(tmp_path)
    writer.store(LARGE, set())
    assert "must be a folder of this user alone" in writer.problem
    assert names(tmp_path) == set()


def anothers(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uid = (root / FOLDER).stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: uid + 1)


def linked(root: Path, _monkeypatch: pytest.MonkeyPatch) -> None:
    (root / FOLDER).rename(root / "private")
    (root / FOLDER).symlink_to(root / "private")


def below_a_link(root: Path, _monkeypatch: pytest.MonkeyPatch) -> None:
    (root / UUID).rename(root / "private")
    (root / UUID).symlink_to(root / "private")


def below_a_folder_of_all(root: Path, _monkeypatch: pytest.MonkeyPatch) -> None:
    (root / UUID).chmod(0o777)


@pytest.mark.guarantee(110)
@pytest.mark.parametrize("plant", [anothers, linked, below_a_link, below_a_folder_of_all])
def test_what_another_user_may_have_planted_is_not_read_and_nothing_is_removed_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plant: Callable[[Path, pytest.MonkeyPatch], None]
) -> None:
    """A folder with the right digest in it, and one that somebody made point to files of this user that the cache would clear away."""
    kept(tmp_path, LARGE)
    before = names(tmp_path)
    plant(tmp_path, monkeypatch)
    reader = opened(tmp_path)
    assert reader.load(LARGE.digest) is None
    assert "must be a folder of this user alone" in reader.problem
    for state in (OTHER, OpenState.empty()):
        writer = opened(tmp_path)
        writer.store(state, set())
        assert "must be a folder of this user alone" in writer.problem
    assert names(tmp_path) == before


def counted(root: Path, monkeypatch: pytest.MonkeyPatch, wanted: str) -> tuple[OpenState | None, list[str]]:
    """What is read of a digest, and the files that were read for it."""
    read = list[str]()
    mapped = cache._mapped

    def mapping(path: Path) -> memoryview:
        read.append(path.suffix)
        return mapped(path)

    with monkeypatch.context() as patch:
        patch.setattr(cache, "_mapped", mapping)
        return opened(root).load(wanted), sorted(read)


def test_a_process_reads_only_what_it_does_not_know_and_another_one_reads_and_proves_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept(tmp_path, LARGE, LARGER)
    assert counted(tmp_path, monkeypatch, LARGER.digest)[1] == [], "it has written them itself"
    for path in (tmp_path / FOLDER).glob("*.events"):
        os.utime(path)
    assert counted(tmp_path, monkeypatch, LARGER.digest)[1] == [".events"] * 2, "somebody has touched them"
    monkeypatch.setattr(known_files, "KNOWN", KnownFiles())
    proven = list[int]()
    check = Segment.check

    def checking(segment: Segment) -> None:
        proven.append(len(segment))
        check(segment)

    monkeypatch.setattr(Segment, "check", checking)
    found, read = counted(tmp_path, monkeypatch, LARGER.digest)
    assert read == [".events"] * 2 + [".segment"] * 2
    assert proven == [20, 2]
    assert found is not None
    assert closing(found) == closing(LARGER)
    assert counted(tmp_path, monkeypatch, LARGE.digest)[1] == []
    assert proven == [20, 2]


def test_a_restarted_worker_recovers_every_count_from_the_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, keeper, before = OpenState.empty(), opened(tmp_path), set[str]()
    for at in range(0, 400, 4):
        key = f"{at % 36}"
        state = grown(
            state,
            *(
                record(at + n, kind, f"{key}-{n}")
                for n, kind in enumerate(["start", "start", "entry", "end"])
            ),
        )
        keeper.store(state, before)
        before = {state.digest}
        if at % 40 == 0:
            monkeypatch.setattr(known_files, "KNOWN", KnownFiles())
            keeper = opened(tmp_path)
        found = keeper.load(state.digest)
        assert found is not None
        assert (found.live.totals, found.gone, found.last) == (state.live.totals, state.gone, state.last)
        assert [layer[1:] for layer in found.live.layers] == [layer[1:] for layer in state.live.layers]
        assert [held[1:] for held in found.held] == [held[1:] for held in state.held]
        state = found


def killed(_point: str) -> None:
    raise KeyboardInterrupt


@pytest.mark.guarantee(39)
def test_a_worker_that_is_killed_between_events_and_table_leaves_the_state_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = kept(tmp_path, LARGE)
    with monkeypatch.context() as patch:
        patch.setattr(cache, "reach", killed)
        with pytest.raises(KeyboardInterrupt):
            writer.store(LARGER, {LARGE.digest})
    assert opened(tmp_path).load(LARGER.digest) is None
    assert opened(tmp_path).load(LARGE.digest) is not None
    opened(tmp_path).store(LARGER, {LARGE.digest})
    assert opened(tmp_path).load(LARGER.digest) is not None


@pytest.mark.guarantee(39)
@pytest.mark.parametrize("written", [0, 1, 2], ids=["the entries", "the events", "the table"])
def test_a_full_disk_leaves_nothing_by_halves_and_is_said_and_the_task_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: int
) -> None:
    kept(tmp_path, LARGE)
    writer = opened(tmp_path)
    larger = grown(writer.load(LARGE.digest) or OTHER, record(20, "entry", "3"), record(21, "start"))
    assert larger.digest == LARGER.digest
    whole = names(tmp_path)
    writes, finished = 0, list[int]()

    class Full:
        def __init__(self, descriptor: int, _mode: str, closefd: bool) -> None:
            self._file = os.fdopen(descriptor, "wb", closefd=closefd)

        def __enter__(self) -> "Full":
            return self

        def __exit__(self, *_: object) -> None:
            self._file.close()

        def writelines(self, parts: list[bytes]) -> None:
            nonlocal writes
            data = b"".join(parts)
            writes += 1
            finished.append(len({name for name in names(tmp_path) if not name.startswith(".")} - whole))
            if writes > written:
                self._file.write(data[: len(data) // 2])
                self._file.flush()
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self._file.write(data)

    monkeypatch.setattr(cache, "open", Full, raising=False)
    writer.store(larger, {LARGE.digest})
    monkeypatch.undo()
    assert "No space left on device" in writer.problem
    assert finished == list(range(written + 1)), "what is being written has no name yet that is looked for"
    assert names(tmp_path) >= whole
    left = names(tmp_path) - whole
    assert not any(name.startswith(".") or name.endswith(".sessions") for name in left), (
        "nothing but whole files"
    )
    assert len(left) == written
    assert opened(tmp_path).load(LARGER.digest) is None
    assert opened(tmp_path).load(LARGE.digest) is not None


def test_the_hour_is_written_down_in_no_place_that_a_link_leads_to(tmp_path: Path) -> None:
    planted = tmp_path / f".{UUID}.swept"
    planted.symlink_to(tmp_path / "another's")
    kept(tmp_path, LARGE)
    assert not (tmp_path / "another's").exists()
    assert (tmp_path / UUID / ".swept").is_file()


def test_what_other_machines_have_now_is_removed_after_a_week_and_looked_for_once_an_hour(
    tmp_path: Path,
) -> None:
    moved, recent = (tmp_path / UUID / f"id-{partition}" for partition in (1, 2))
    for folder, days in ((moved, 8), (recent, 6)):
        folder.mkdir(mode=0o700, parents=True)
        (folder / "0.sessions").touch()
        os.utime(folder, (time.time() - days * 86_400,) * 2)
    (tmp_path / UUID).chmod(0o700)
    (tmp_path / UUID / "link").symlink_to(tmp_path)
    kept(tmp_path, LARGE)
    assert not moved.exists()
    assert recent.exists()
    assert (tmp_path / UUID / "link").exists()

    os.utime(recent, (0, 0))
    kept(tmp_path, LARGE, LARGER)
    assert recent.exists()
    os.utime(tmp_path / UUID / ".swept", (time.time() - 3_601,) * 2)
    kept(tmp_path, LARGE)
    assert not recent.exists()
