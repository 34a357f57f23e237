"""One task: sessions transformed, failures kept, open sessions found, and nothing done with other code or more memory than was said."""

import errno
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest

from service.errors import SettingsError
from spark_job import OutputEvent, Session
from spark_job.assembly import known_files, letters, rebuild, rows, task
from spark_job.assembly.known_files import KnownFiles
from spark_job.assembly.rebuild import OpenSessionsDifferError
from spark_job.assembly.slices import Slice
from spark_job.outputs.pgcopy import nullable
from spark_job.outputs.transform import CodeChangedError
from spark_job.outputs.transform_failures import TransformStoppedError
from spark_job.sessions import partition_limits
from spark_job.sessions.assembler import assemble
from spark_job.sessions.errors import DamagedStateError
from spark_job.sessions.result import AssembledSessions, DeadLetter
from spark_job.sessions.settings import AssemblySettings
from spark_job.sessions.state.open_sessions import OpenSessions
from spark_job.sessions.state.open_state import OpenState
from tests.support.histories.tasks import UUID, kafka, run_task, slice_of, task_settings
from tests.support.reference.model import Record
from tests.support.reference.tombstones import tombstones

HERE = "tests.unit.spark_job.assembly.test_task"
RULES = AssemblySettings(key_path=None, timeout_ms=60_000)


def good(session: Session) -> Iterable[OutputEvent]:
    return [OutputEvent("t", f"{session.key}:{len(session.events)}:{session.start.topic}".encode())]


def raising(session: Session) -> Iterable[OutputEvent]:
    raise ValueError("no \ud800 luck\0")


def exiting(session: Session) -> Iterable[OutputEvent]:
    raise SystemExit(3)


LACKING: list[BaseException] = [
    MemoryError(),
    pa.ArrowMemoryError("malloc"),
    OSError(errno.EMFILE, "Too many open files"),
    OSError(errno.ENOSPC, "No space left on device"),
    OSError(errno.EAGAIN, "Resource temporarily unavailable"),
    RuntimeError("can't start new thread"),
]


def lacking(session: Session) -> Iterable[OutputEvent]:
    raise LACKING[0]


def hiding_what_lacks(session: Session) -> Iterable[OutputEvent]:
    raise ValueError("no price") from LACKING[0]


def wrong(session: Session) -> Iterable[Any]:
    return [OutputEvent("t", b"x"), "text"]


def decoding(session: Session) -> Iterable[OutputEvent]:
    return [OutputEvent("t", event.value) for event in session.events]


def log(*events: tuple[str, str], ts: int = 1_000, in_header: bool = False) -> list[Record]:
    """(key, type) at the offsets from 0 on."""
    return [
        Record(
            0,
            offset,
            ts + offset,
            key,
            orjson.dumps({"event_type": kind, "n": offset}),
            kind if in_header else None,
        )
        for offset, (key, kind) in enumerate(events)
    ]


WHOLE = [("a", "start_event"), ("a", "entry_event"), ("a", "end_event")]
OPEN = log(
    ("a", "start_event"), ("b", "start_event"), ("a", "entry_event"), ("b", "end_event"), ("a", "end_event")
)


def found(cache: Path, of: Slice, records: list[Record], **changed: Any) -> list[dict[str, Any]]:
    """The rows of a task with one slice: sessions and letters, and the partition's last."""
    rows_found: list[dict[str, Any]] = run_task(
        task_settings(cache, **changed), {0: of}, {0: records}
    ).to_pylist()
    return rows_found


def told(partition: dict[str, Any]) -> dict[str, Any]:
    assert partition["kind"] == rows.PARTITION
    return orjson.loads(partition["detail"])  # type: ignore[no-any-return]


def following(of: Slice, partition: dict[str, Any], end: int) -> Slice:
    """The slice after the one that a partition's row tells of."""
    detail = told(partition)
    safe = of.end if detail["safe"] is None else detail["safe"]
    return replace(
        of,
        start=of.end,
        end=end,
        safe=safe,
        digest=detail["digest"],
        tombstones=partition["tombstones"] or b"",
    )


def two_slices(cache: Path, at: int) -> tuple[dict[str, Any], Slice]:
    """The row of the first slice of OPEN, which ends at an offset, and the slice after it."""
    first = slice_of(rules=RULES, end=at)
    *_, partition = found(cache, first, OPEN)
    return partition, following(first, partition, 5)


@pytest.mark.parametrize("function", ["lacking", "hiding_what_lacks"])
@pytest.mark.parametrize("error", LACKING, ids=repr)
def test_what_the_machine_lacks_is_no_fault_of_the_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str, error: BaseException
) -> None:
    """It gets no letter: the task fails, and the next attempt finds another machine, or a smaller batch."""
    monkeypatch.setattr(f"{HERE}.LACKING", [error])
    with pytest.raises(type(error)) as raised:
        found(tmp_path, slice_of(rules=RULES), log(*WHOLE), function=f"{HERE}:{function}")
    assert raised.value is error


def test_a_session_comes_with_its_place_and_its_outputs(tmp_path: Path) -> None:
    session, partition = found(tmp_path, slice_of(rules=RULES), log(*WHOLE), function=f"{HERE}:good")
    assert {
        name: session[name] for name in ("kind", "session_key", "first_offset", "last_offset", "outputs")
    } == {
        "kind": rows.SESSION,
        "session_key": "a",
        "first_offset": 0,
        "last_offset": 2,
        "outputs": 1,
    }
    assert nullable(b"a:3:in") in session["fields"]
    detail = told(partition)
    assert (detail["digest"], detail["safe"], detail["rebuilt"], detail["problem"]) == ("", None, None, "")
    assert (detail["counts"]["events"], detail["counts"]["sessions"]) == (3, 1)


@pytest.mark.guarantee(15)
@pytest.mark.parametrize(
    ("function", "detail"),
    [
        ("raising", "ValueError: no \\ud800 luck\\0"),
        ("exiting", "SystemExit: 3"),
        ("wrong", "output 1 is str, not OutputEvent"),
    ],
)
def test_a_transform_that_fails_makes_a_dead_letter_with_the_events(
    tmp_path: Path, function: str, detail: str
) -> None:
    letter, _ = found(tmp_path, slice_of(rules=RULES), log(*WHOLE), function=f"{HERE}:{function}")
    assert (letter["kind"], letter["reason"], letter["events"], letter["kept"]) == (
        rows.LETTER,
        "transform_failed",
        3,
        3,
    )
    assert detail in letter["detail"]
    assert "Traceback" in letter["detail"]


@pytest.mark.guarantee(13)
@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (b"1.8e308", "transform_failed"),
        (b"9" * 400, "transform_failed"),
        (b"1e999", "malformed"),
        (b"0e999", "malformed"),
    ],
)
def test_a_number_that_no_float_holds_makes_a_dead_letter_with_its_bytes(
    tmp_path: Path, number: bytes, reason: str
) -> None:
    records = log(*WHOLE)
    records[1] = replace(records[1], value=b'{"event_type":"entry_event","n":' + number + b"}")
    rows_found = found(tmp_path, slice_of(rules=RULES), records, function=f"{HERE}:decoding")
    letters = [row for row in rows_found if row["kind"] == rows.LETTER]
    assert [letter["reason"] for letter in letters] == [reason]
    assert nullable(records[1].value) in letters[0]["values"]


@pytest.mark.parametrize("in_header", [True, False])
def test_letters_keep_the_types_that_only_a_header_told(tmp_path: Path, in_header: bool) -> None:
    records = log(*WHOLE, ("b", "entry_event"), ("c", "odd\0"), in_header=in_header)
    rules = replace(RULES, type_path=None) if in_header else RULES
    *letters, _ = found(tmp_path, slice_of(rules=rules), records, function=f"{HERE}:raising")
    types = {letter["reason"]: letter["types"] for letter in letters}
    expected: dict[str, list[bytes] | None] = {
        "transform_failed": [b"start_event", b"entry_event", b"end_event"],
        "no_start": [b"entry_event"],
        "malformed": [b"odd\\0"],
    }
    if not in_header:
        expected = dict.fromkeys(expected)
    assert types == {
        reason: None if each is None else b"".join(map(nullable, each)) for reason, each in expected.items()
    }


def test_a_transform_that_fails_stops_the_job_where_asked(tmp_path: Path) -> None:
    """The text is kept with the run, where `publisher erase` finds no key: it names the session by its place."""
    with pytest.raises(TransformStoppedError, match=r"the session that ends at in/0/\d+ ") as stopped:
        found(tmp_path, slice_of(rules=RULES), log(*WHOLE), function=f"{HERE}:raising", stop_on_error=True)
    assert "'a'" not in str(stopped.value)


def test_a_transform_that_cannot_be_imported_fails_the_batch_not_its_sessions(tmp_path: Path) -> None:
    settings = task_settings(tmp_path)
    absent = replace(settings, transform=replace(settings.transform, function=f"{HERE}:absent"))
    with pytest.raises(SettingsError, match="has no function 'absent'"):
        run_task(absent, {0: slice_of(rules=RULES)}, {0: log(*WHOLE)})


@pytest.mark.guarantee(119)
def test_a_worker_with_another_assembler_refuses_before_it_reads_anything(tmp_path: Path) -> None:
    settings = replace(task_settings(tmp_path), code="of another version")
    with pytest.raises(
        CodeChangedError, match=r"not of another version\. Install the same version everywhere"
    ):
        list(task.AssemblyTask(settings, {})(iter(())))


@pytest.mark.guarantee(119)
def test_a_worker_with_an_edited_transform_refuses(tmp_path: Path) -> None:
    settings = task_settings(tmp_path)
    edited = replace(settings, transform=replace(settings.transform, fingerprint="before"))
    with pytest.raises(CodeChangedError, match="edited or replaced while the job runs"):
        run_task(edited, {0: slice_of(rules=RULES)}, {0: log(*WHOLE)})


@pytest.mark.guarantee(16)
def test_what_ended_for_want_of_room_is_not_found_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = log(*[(f"{key}", "start_event") for key in range(50)])
    size = sum(len(record.value or b"") for record in records)
    rules = replace(RULES, max_open_bytes=size // 2)
    first = slice_of(rules=rules, end=49)
    *ended, partition = found(tmp_path / "kept", first, records)
    assert {(letter["reason"], letter["kept"]) for letter in ended} == {("too_large", 1)}
    assert [letter["first_offset"] for letter in ended] == list(range(len(ended)))
    assert told(partition)["safe"] == len(ended)
    monkeypatch.setattr(rebuild, "committed_records", kafka({0: records}))
    second = following(first, partition, 50)
    again = [found(tmp_path / cache, second, records) for cache in ("kept", "lost")]
    assert [told(rows_of[-1])["digest"] for rows_of in again] == [told(again[0][-1])["digest"]] * 2
    assert [told(rows_of[-1])["rebuilt"] is None for rows_of in again] == [True, False]


def test_however_the_records_come_in_pieces_the_rows_are_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (*expected, partition), of = found(tmp_path / "a", slice_of(rules=RULES), OPEN[:4]), slice_of(rules=RULES)
    monkeypatch.setattr(task, "PIECE_BYTES", 1)
    monkeypatch.setattr(rows, "BATCH_BYTES", 1)
    *again, of_pieces = run_task(task_settings(tmp_path / "b"), {0: of}, {0: OPEN[:4]}, size=1).to_pylist()
    assert again == expected
    assert {**told(of_pieces), "seconds": 0} == {**told(partition), "seconds": 0}


@pytest.mark.guarantee(41)
def test_open_sessions_are_taken_from_the_cache_and_kafka_is_not_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rebuild, "committed_records", None)
    _, after = two_slices(tmp_path, 3)
    *_, session, partition = found(tmp_path, after, OPEN)
    assert (session["first_offset"], session["last_offset"]) == (0, 4)
    assert told(partition)["rebuilt"] is None


@pytest.mark.guarantee(40)
def test_without_a_cache_they_are_found_again_from_the_safe_offset_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[int, int, int]] = []
    monkeypatch.setattr(rebuild, "committed_records", kafka({0: OPEN}, lambda *read: asked.append(read)))
    _, after = two_slices(tmp_path / "there", 4)
    *_, session, partition = found(tmp_path / "here", after, OPEN)
    assert asked == [(0, 0, 4)]
    assert (session["session_key"], session["first_offset"]) == ("a", 0)
    assert told(partition)["rebuilt"]["events"] == 4
    assert told(partition)["rebuilt"]["differs"] is False


def test_where_nothing_is_open_nothing_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rebuild, "committed_records", None)
    *_, partition = found(tmp_path, slice_of(rules=RULES, start=3, end=5, safe=3, digest=""), OPEN)
    assert told(partition)["rebuilt"] is None


@pytest.mark.guarantee(40)
@pytest.mark.parametrize(
    "lost",
    [
        OPEN[1:],
        OPEN[:2],
        [],
        [OPEN[0], replace(OPEN[1], key="c"), *OPEN[2:]],
        [replace(OPEN[0], ts=1_001), *OPEN[1:]],
    ],
    ids=["compacted start", "deleted end", "all", "other key", "other time"],
)
def test_what_is_found_again_and_differs_stops_the_job_unless_that_was_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: list[Record]
) -> None:
    _, after = two_slices(tmp_path / "there", 3)
    monkeypatch.setattr(rebuild, "committed_records", kafka({0: lost}))
    with pytest.raises(
        OpenSessionsDifferError,
        match=r"in/0: the sessions open at offset 3, rebuilt from offset 0 on, are not those that the outbox recorded",
    ):
        found(tmp_path / "here", after, OPEN)
    *_, partition = found(tmp_path / "here", replace(after, accept_differing=True), OPEN)
    assert told(partition)["rebuilt"]["differs"] is True


def test_what_nobody_knows_is_taken_as_it_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After an upgrade or an accepted loss there is no digest to compare with."""
    monkeypatch.setattr(rebuild, "committed_records", kafka({0: OPEN[1:]}))
    of = slice_of(rules=RULES, start=3, end=5, safe=1, digest=None)
    *_, closed, letter, partition = found(tmp_path, of, OPEN)
    assert (closed["session_key"], letter["session_key"], letter["reason"]) == ("b", "a", "no_start")
    assert told(partition)["rebuilt"] == {**told(partition)["rebuilt"], "events": 2, "differs": False}


def test_tombstones_are_the_positions_also_where_nobody_knows_what_else_is_open(tmp_path: Path) -> None:
    of = slice_of(rules=RULES, start=3, end=5, safe=3, digest=None, tombstones=tombstones(a=1))
    *rest, partition = found(tmp_path, of, OPEN)
    assert [each["session_key"] for each in rest] == ["b"], (
        "the tombstone of the other key swallows its events"
    )
    assert told(partition)["counts"]["swallowed"] > 0


def test_a_partition_remembers_no_more_keys_than_a_row_of_the_ledger_should_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partition_limits, "MAX_TOMBSTONES_BYTES", 600)
    of = slice_of(rules=replace(RULES, max_events=1, max_open_bytes=1 << 20))
    endless = log(*((f"k{n // 2}", ("start_event", "entry_event")[n % 2]) for n in range(20)))
    *_, partition = found(tmp_path, of, endless)
    left = OpenSessions.decoded(memoryview(partition["tombstones"]))
    assert left.key.to_pylist() == ["k7", "k8", "k9"]
    assert len(partition["tombstones"]) <= 600


def test_letters_that_say_much_of_little_go_to_the_driver_in_batches_of_bounded_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A traceback has thousands of characters, and the events of its session may have ten bytes."""
    monkeypatch.setattr(rows, "BATCH_BYTES", 10_000)
    out = rows.RowBatches()
    for offset in range(100):
        said = DeadLetter(
            offset, offset, offset, "malformed", None, "x" * 600, [(offset, 0, b"{")], 1, ["y" * 400]
        )
        for batch in out.add(letters.letter(0, said)):
            assert batch.num_rows <= 10
    (rest,) = list(out.rest()) or [None]
    assert rest is None or rest.num_rows <= 10


@pytest.mark.guarantee(40)
@pytest.mark.parametrize("keep", [True, False])
def test_what_silence_closed_before_the_slice_is_forgotten_but_not_after_an_upgrade(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keep: bool
) -> None:
    late = [OPEN[0], replace(OPEN[1], ts=200_000)]
    late += [replace(OPEN[1], offset=2, key="c", ts=200_000), replace(OPEN[3], ts=200_001)]
    monkeypatch.setattr(rebuild, "committed_records", kafka({0: late}))
    of = slice_of(rules=RULES, start=3, end=5, digest=None, keep_timed_out=keep)
    *letters, _, _ = found(tmp_path, of, late)
    assert [(each["reason"], each["first_offset"]) for each in letters] == [("timed_out", 0)] * keep


@pytest.mark.guarantee(39)
def test_damaged_events_are_found_when_they_are_used_and_the_next_attempt_finds_the_sessions_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, after = two_slices(tmp_path, 3)
    (chunk,) = (tmp_path / UUID / "id-0").glob("*.events")
    whole = chunk.read_bytes()
    chunk.write_bytes(whole.replace(b"start_event", b"start_evenT"))
    assert chunk.read_bytes() != whole
    with pytest.raises(DamagedStateError, match="other events"):
        found(tmp_path, after, OPEN)
    monkeypatch.setattr(rebuild, "committed_records", kafka({0: OPEN}))
    *_, session, partition = found(tmp_path, after, OPEN)
    assert (session["first_offset"], session["last_offset"]) == (0, 4)
    assert told(partition)["rebuilt"]["events"] == told(expected)["counts"]["events"] == 3


@pytest.mark.guarantee(39)
def test_entries_that_are_damaged_while_a_task_uses_them_end_it_and_the_next_attempt_finds_the_sessions_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a session that is open would be none: its end would be a letter, and no digest would show it."""
    _, after = two_slices(tmp_path, 3)
    (segment,) = (tmp_path / UUID / "id-0").glob("*.segment")
    whole = segment.read_bytes()
    at = whole.index(b"ab")  # the keys

    def damaging(*given: Any) -> AssembledSessions:
        with segment.open("r+b") as file:
            file.seek(at)
            file.write(b"xy")
        return assemble(*given)

    monkeypatch.setattr(task, "assemble", damaging)
    with pytest.raises(DamagedStateError, match="while it was in use"):
        found(tmp_path, after, OPEN)
    monkeypatch.setattr(task, "assemble", assemble)
    monkeypatch.setattr(rebuild, "committed_records", kafka({0: OPEN}))
    *_, session, partition = found(tmp_path, after, OPEN)
    assert (session["first_offset"], session["last_offset"]) == (0, 4)
    assert told(partition)["rebuilt"]["events"] == 3


BORDERS = log(
    ("open", "start_event"),
    ("closed", "start_event"),
    ("closed", "entry_event"),
    ("open", "entry_event"),
    ("closed", "end_event"),
    ("new", "start_event"),
)
"""Of `closed`, an end in another piece than the events before it."""


def marked(records: list[Record]) -> list[Record]:
    """The records, with their key in each event."""
    return [
        replace(each, value=orjson.dumps(orjson.loads(each.value or b"") | {"of": f"<{each.key!s}>"}))
        for each in records
    ]


def events_on_disk(cache: Path) -> bytes:
    return b"".join(path.read_bytes() for path in (cache / UUID / "id-0").glob("*.events"))


@pytest.mark.guarantee(183)
def test_a_rebuild_brings_no_event_of_a_closed_session_back_onto_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An erasure has removed the cache, and with it what the session had left there."""
    monkeypatch.setattr(rebuild, "PIECE_EVENTS", 1)
    records = marked(BORDERS)
    monkeypatch.setattr(rebuild, "committed_records", kafka({0: records}))
    first = slice_of(rules=RULES, end=5)
    *_, expected = found(tmp_path / "there", first, records)
    *_, partition = found(tmp_path / "here", following(first, expected, 6), records)
    assert told(partition)["rebuilt"]["events"] == 5
    on_disk = events_on_disk(tmp_path / "here")
    assert [on_disk.count(f"<{key}>".encode()) for key in ("open", "closed", "new")] == [2, 0, 1]
    files = [path.read_bytes() for path in (tmp_path / "here" / UUID / "id-0").iterdir()]
    assert not any(b"closed" in each for each in files), "nor the key"
    *_, intact = found(tmp_path / "there", following(first, expected, 6), records)
    assert told(intact)["digest"] == told(partition)["digest"]


def test_a_session_that_a_later_piece_of_the_slice_closes_leaves_no_event_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task, "PIECE_BYTES", 0)
    records = marked(BORDERS)
    of = {0: slice_of(rules=RULES, end=6)}
    *_, partition = run_task(task_settings(tmp_path), of, {0: records}, size=3).to_pylist()
    on_disk = events_on_disk(tmp_path)
    assert [on_disk.count(f"<{key}>".encode()) for key in ("open", "closed", "new")] == [2, 0, 1]
    ends = [
        replace(each, offset=at, value=orjson.dumps({"event_type": "end_event"}))
        for at, each in ((6, records[0]), (7, records[5]))
    ]
    after = following(of[0], partition, 8)
    *closed, last = found(tmp_path, after, [*records, *ends])
    assert [each["first_offset"] for each in closed] == [0, 5]
    assert (told(last)["rebuilt"], told(last)["problem"]) == (None, "")


@pytest.mark.guarantee(39)
def test_damage_that_only_the_writing_of_the_cache_finds_costs_a_rebuild_by_the_next_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, after = two_slices(tmp_path, 3)

    def damaged(*_: Any) -> OpenState:
        raise DamagedStateError("bounds of events are out of order")

    with monkeypatch.context() as patch:
        patch.setattr(OpenState, "without_closed", damaged)
        with pytest.raises(DamagedStateError, match="out of order"):
            found(tmp_path, replace(after, end=4), OPEN)
    monkeypatch.setattr(rebuild, "committed_records", kafka({0: OPEN}))
    *_, partition = found(tmp_path, replace(after, end=4), OPEN)
    assert told(partition)["rebuilt"]["events"] == 3


def test_workers_that_take_turns_with_a_partition_let_go_what_the_others_have_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workers, most = [KnownFiles() for _ in range(3)], 0
    records = log(*[(f"{key}", "start_event") for key in range(120)])
    of = slice_of(rules=RULES, end=1)
    for number in range(len(records)):
        monkeypatch.setattr(known_files, "KNOWN", workers[number % 3])
        *_, partition = found(tmp_path, of, records)
        of = following(of, partition, of.end + 1)
        most = max(most, *map(len, workers))
    assert most < 60, "of the few states in which each has met it last"


def test_a_cache_that_cannot_be_used_costs_a_rebuild_and_is_told_to_the_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_folder = tmp_path / "file"
    no_folder.write_bytes(b"")
    monkeypatch.setattr(rebuild, "committed_records", kafka({0: OPEN}))
    *_, partition = found(no_folder, slice_of(rules=RULES, end=3), OPEN)
    assert "open sessions were not kept" in told(partition)["problem"]
    *_, session, last = found(no_folder, following(slice_of(rules=RULES, end=3), partition, 5), OPEN)
    assert (session["first_offset"], told(last)["rebuilt"]["events"]) == (0, 3)
    assert str(no_folder) in told(last)["problem"]
