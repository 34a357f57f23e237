"""What comes out depends on the input alone: not on cuts, not on the number of tasks, and not on what was lost of the open sessions."""

import random
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import orjson
import pytest

from service.settings import SessionSettings, Settings
from spark_job.assembly import rebuild
from spark_job.input.offsets import Offsets, TopicPartition
from spark_job.ledger.assembly_rules import applied_rules, stored_rules
from spark_job.sessions.settings import AssemblySettings
from spark_job.sink.batch_result import SessionRow
from tests.support.histories.expected_outbox import Place
from tests.support.histories.tasks import Job, kafka
from tests.support.reference.model import Expected, Record, expected_sessions

BEFORE = SessionSettings(timeout_s=0.06, grace_s=0.02, max_events=5, max_bytes=1_400)
AFTER = SessionSettings(
    timeout_s=0.2, grace_s=0.0, max_events=4, max_bytes=1_400, entry="other_event", on_timeout="emit"
)
EMITTED = BEFORE.model_copy(update={"on_timeout": "emit"})
SILENT = EMITTED.model_copy(update={"start": "", "end": "", "entry": "*", "max_events": 50})
IN_PARTS = SILENT.model_copy(update={"max_events": 4})
BY_CLOCK = EMITTED.model_copy(update={"clock_records": True})
IN_PARTS_BY_CLOCK = IN_PARTS.model_copy(update={"clock_records": True})
ANY_OPENS = EMITTED.model_copy(update={"start": "", "entry": ("entry_event", "start_event")})
REUSED = SessionSettings(timeout_s=0.06, grace_s=0.02, max_events=3, max_bytes=1_400, event_id="$.id")
PHRASES = ["sx ny nz nw nv", "sx nq eq", "sx ny", "ey", "sy", "nx ex", "sx"]
"""Events as kind and id: too many of them, a start that comes again with an end that has the id of its entry, and others."""
PARTITIONS = 4
SEEDS = range(5)
ALL = frozenset(range(8))


@cache
def logs_of(seed: int) -> dict[int, list[Record]]:
    """Interleaved sessions of a few keys in each partition, with some of everything that can be wrong with them."""
    rng = random.Random(seed)
    logs: dict[int, list[Record]] = {partition: [] for partition in range(PARTITIONS)}
    offset = {partition: rng.choice([0, 5]) for partition in logs}
    is_open: set[tuple[int, str]] = set()
    ts = 1_000
    for number in range(160):
        partition, key = rng.choice([0, 0, 1, 1, 2, 3]), rng.choice(["a", "b", "ü"])
        kinds = ["start_event"] * 12 + ["entry_event"]
        if (partition, key) in is_open:
            kinds = ["entry_event"] * 14 + ["end_event"] * 4 + ["start_event", "other_event"]
        kind = rng.choice([*kinds, "no json"] if rng.random() < 0.2 else kinds)
        (is_open.add if kind == "start_event" else is_open.discard if kind == "end_event" else tuple)(
            (partition, key)
        )
        ts += rng.choice([0, 0, 1, 2, 3, -2]) if rng.random() > 0.02 else rng.choice([61, 81, 210])
        value = orjson.dumps(
            {"event_type": kind, "session_key": key, "n": number, "fill": "x" * rng.choice([0, 0, 0, 400])}
        )
        broken = rng.choice([b"{", None]) if kind == "no json" else value
        logs[partition].append(Record(partition, offset[partition], ts, key, broken))
        step = rng.choice([1, 1, 1, 2, 3])  # transactions leave offsets without a record
        if step > 1:
            logs[partition] += clock_records(partition, offset[partition] + 1, ts)
        offset[partition] += step
    return logs


def clock_records(partition: int, offset: int, ts: int) -> list[Record]:
    """One of then, or later, perhaps by ten years, or none. Where the settings have none, it is malformed."""
    rng = random.Random(offset * PARTITIONS + partition)
    at, by_broker = ts + rng.choice([0, 30, 85, 315_360_000_000]), rng.random() < 0.2
    record = Record(partition, offset, at, None, None, by_broker=by_broker, clock=b"1")
    return [record] * (rng.random() < 0.6)


def reused_ids(seed: int) -> dict[int, list[Record]]:
    """Interleaved phrases of three keys, in which different events have one id."""
    rng, kinds = random.Random(seed), {"s": "start_event", "n": "entry_event", "e": "end_event"}
    left: dict[str, list[str]] = {key: [] for key in "abc"}
    log = []
    for offset in range(30):
        key = rng.choice("abc")
        left[key] = left[key] or rng.choice(PHRASES).split()
        phrase = left[key].pop(0)
        kind, event_id = phrase[0], phrase[1]
        event = {"event_type": kinds[kind], "session_key": key, "id": event_id, "n": rng.choice([0, 0, 1])}
        log.append(Record(0, offset, 1_000 + offset, key, orjson.dumps(event)))
    return {0: log}


@dataclass(frozen=True)
class Cut:
    """A batch: how many offsets of each partition it takes, and how it is run."""

    places: tuple[int, ...]
    tasks: int
    lost: frozenset[int]
    """Tasks that find no cache."""
    size: int
    """Records that Spark gives a task at once."""


def cuts_of(seed: int) -> list[Cut]:
    rng = random.Random(seed)
    return [
        Cut(
            tuple(rng.choice([0, 1, 4, 15]) for _ in range(PARTITIONS)),
            rng.randint(1, 8),
            frozenset(rng.sample(range(8), rng.randint(0, 8))),
            rng.choice([1, 3, 1_000]),
        )
        for _ in range(6)
    ]


def ends(job: Job) -> dict[int, int]:
    return {partition: log[-1].offset + 1 for partition, log in job.logs.items()}


def run(job: Job, cuts: Sequence[Cut]) -> Job:
    """Some batches."""
    for cut in cuts:
        at = {partition: job.position.end.at(TopicPartition("id", partition)) for partition in job.logs}
        to = {
            partition: min(at[partition] + cut.places[partition], end) for partition, end in ends(job).items()
        }
        job.run_batch(to, tasks=cut.tasks, lose_cache=cut.lost, size=cut.size)
    return job


def to_the_end(job: Job, lost: frozenset[int] = frozenset()) -> Job:
    """One batch of all that is left."""
    job.run_batch(ends(job), lose_cache=lost)
    return job


def all_of(logs: Mapping[int, Sequence[Record]]) -> list[Record]:
    return [record for log in logs.values() for record in log]


def rules_of(session: SessionSettings) -> AssemblySettings:
    return applied_rules(stored_rules(Settings(session=session))).rules


def told_of(row: SessionRow) -> tuple[int, str]:
    """Which part the transform was given, and what had ended it."""
    (found,) = re.findall(rb'"part":(\d+),"ended_by":"(\w+)"', row.fields)
    return int(found[0]), found[1].decode()


def assert_as_expected(job: Job, expected: Expected) -> None:
    """The model's sessions and letters, and no others."""
    rows, letters = job.outcome()
    assert [(row.where.partition, row.end, row.start, *told_of(row)) for row in rows] == sorted(
        (session.source, session.end_offset, session.start_offset, session.part, session.ended_by)
        for session in expected.sessions
    )
    assert sorted(
        (letter.where.partition, letter.first_offset, letter.reason) for letter in letters
    ) == sorted((letter.source, letter.first_offset, letter.reason) for letter in expected.letters)


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is read again is assembled in several steps, too."""
    monkeypatch.setattr(rebuild, "PIECE_EVENTS", 5)


@pytest.mark.guarantee(3, 4)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    "session",
    [BEFORE, EMITTED, SILENT, IN_PARTS, ANY_OPENS, BY_CLOCK, IN_PARTS_BY_CLOCK],
    ids=[
        "dead letters",
        "emitted",
        "only silence ends",
        "in parts",
        "any event opens",
        "by clock records",
        "in parts by clock records",
    ],
)
def test_any_cuts_tasks_and_lost_caches_give_the_rows_and_letters_of_one_task_at_once(
    session: SessionSettings, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = logs_of(seed)
    monkeypatch.setattr(rebuild, "committed_records", kafka(logs))
    plain = to_the_end(Job(logs, tmp_path / "a", session))
    cut = to_the_end(run(Job(logs, tmp_path / "b", session), cuts_of(seed)))
    assert cut.outcome() == plain.outcome()
    assert cut.digests() == plain.digests()
    expected = expected_sessions(all_of(logs), rules_of(session))
    assert_as_expected(plain, expected)
    assert sum(each.sessions for each in plain.position.open.values()) == len(expected.open)


@pytest.mark.guarantee(83)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    "after",
    [AFTER, IN_PARTS, IN_PARTS_BY_CLOCK],
    ids=["other limits", "in parts", "in parts by clock records"],
)
def test_a_changed_assembly_judges_what_comes_after_it_also_where_the_sessions_before_are_found_again(
    after: SessionSettings, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = logs_of(seed)
    monkeypatch.setattr(rebuild, "committed_records", kafka(logs))

    starts: list[Offsets] = []

    def changed_twice(lost: frozenset[int]) -> Job:
        cuts = [replace(cut, lost=lost) for cut in cuts_of(seed)]
        job = run(Job(logs, tmp_path / f"{len(lost)}", BEFORE), cuts[:3])
        starts[:] = [job.position.end]
        job.change_assembly(after)
        run(job, cuts[3:])
        starts.append(job.position.end)
        job.change_assembly(BEFORE)
        return to_the_end(job, lost)

    kept, found_again = changed_twice(frozenset()), changed_twice(ALL)
    assert kept.rebuilt == 0
    assert found_again.outcome() == kept.outcome()
    assert found_again.digests() == kept.digests()

    def judge(record: Record) -> AssemblySettings:
        first, second = (start.at(TopicPartition("id", record.source)) for start in starts)
        return rules_of(after if first <= record.offset < second else BEFORE)

    assert_as_expected(kept, expected_sessions(all_of(logs), judge))


def lose_beginnings(job: Job, places: dict[int, Place], rng: random.Random) -> None:
    """Kafka's retention takes what a rebuild needs, and sometimes more than was read."""
    safe, earliest = job.position.open.safe(job.position.end), dict.fromkeys(job.logs, 0)
    for partition, place in places.items():
        needed = safe.at(TopicPartition("id", partition))
        earliest[partition] = rng.randint(needed, min(place.end + 3, ends(job)[partition]))
        if needed < earliest[partition]:
            places[partition] = place.lost(
                max(place.end, earliest[partition]), max(needed, earliest[partition])
            )
    job.continue_after_losses(earliest)


def lose_ends(job: Job, places: dict[int, Place], rng: random.Random) -> None:
    """Kafka loses the ends of its logs, and gives the offsets to other records."""
    safe, logs, more = job.position.open.safe(job.position.end), dict(job.logs), logs_of(rng.randrange(99))
    cuts: dict[int, int] = {}
    while not any(cuts.get(partition, place.end) < place.end for partition, place in places.items()):
        cuts = {partition: rng.choice(logs[partition]).offset + 1 for partition in places}
    for partition, place in places.items():
        if cuts[partition] < place.end:
            logs[partition] = [record for record in logs[partition] if record.offset < cuts[partition]]
    job.logs = logs
    job.continue_after_losses(dict.fromkeys(logs, 0))
    for partition, place in places.items():
        if (cut := cuts[partition]) < place.end:
            first = more[partition][0].offset
            moved = [replace(each, offset=each.offset - first + cut) for each in more[partition]]
            logs[partition] = [*logs[partition], *moved]
            kept = place.lost(cut, min(safe.at(TopicPartition("id", partition)), cut))
            places[partition] = replace(kept, log=by_offset(logs[partition]))


def by_offset(log: Sequence[Record]) -> list[Record | None]:
    found: list[Record | None] = [None] * (log[-1].offset + 1)
    for record in log:
        found[record.offset] = record
    return found


@pytest.mark.guarantee(42)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("lose", [lose_beginnings, lose_ends])
@pytest.mark.parametrize(
    "session", [BEFORE, IN_PARTS, BY_CLOCK], ids=["dead letters", "in parts", "by clock records"]
)
def test_what_is_left_of_a_log_gives_what_the_model_gives(
    session: SessionSettings,
    lose: Callable[[Job, dict[int, Place], random.Random], None],
    seed: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rules = rules_of(session)
    monkeypatch.setattr(rebuild, "committed_records", kafka(logs_of(seed)))
    job = run(Job(logs_of(seed), tmp_path, session), cuts_of(seed))
    places = {
        partition: Place(
            by_offset(log), job.position.end.at(TopicPartition("id", partition)), 0, ((0, rules),)
        )
        for partition, log in job.logs.items()
    }
    lose(job, places, random.Random(seed))
    monkeypatch.setattr(rebuild, "committed_records", kafka(job.logs))
    job.sessions, job.letters = [], []
    to_the_end(run(job, cuts_of(seed + 1)))
    expected = Expected()
    for partition, place in places.items():
        found = place.model(ends(job)[partition])
        expected.sessions += [each for each in found.sessions if each.closing_offset >= place.end]
        expected.letters += [each for each in found.letters if each.closing_offset >= place.end]
        opened = job.position.open.get(TopicPartition("id", partition))
        if opened is None or opened.digest is not None:  # else nothing was read since
            assert (0 if opened is None else opened.sessions) == len(found.open)
    assert_as_expected(job, expected)


def test_the_histories_meet_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the tests above would say little."""
    met = Counter[str]()
    for seed in SEEDS:
        monkeypatch.setattr(rebuild, "committed_records", kafka(logs_of(seed)))
        job = run(Job(logs_of(seed), tmp_path / f"{seed}", BEFORE), cuts_of(seed))
        met["rebuilt"] += job.rebuilt
        met["open"] += len(job.position.open)
        met["tombstones"] += sum(bool(each.tombstones) for each in job.position.open.values())
        met["sessions"] += len(job.sessions)
        met.update(letter.reason for letter in job.letters)
    wanted = {
        "rebuilt",
        "open",
        "tombstones",
        "sessions",
        "malformed",
        "no_start",
        "restarted",
        "timed_out",
        "too_large",
    }
    assert {name for name in wanted if not met[name]} == set()


@pytest.mark.parametrize("seed", range(30))
def test_an_id_that_different_events_share_makes_no_rebuild_differ(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tombstone has forgotten ids that a session has which a rebuild begins at a start that was sent again."""
    logs = reused_ids(seed)
    monkeypatch.setattr(rebuild, "committed_records", kafka(logs))
    plain = to_the_end(Job(logs, tmp_path / "a", REUSED))
    assert_as_expected(plain, expected_sessions(all_of(logs), rules_of(REUSED)))
    again = Job(logs, tmp_path / "b", REUSED)
    for end in range(3, 31, 3):
        again.run_batch({0: end}, lose_cache=ALL)
    assert again.outcome() == plain.outcome()
    assert again.digests() == plain.digests()
