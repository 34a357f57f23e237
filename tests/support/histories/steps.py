"""The steps of random histories: crashes, lost caches, restores, changed rules, zombies, and what Kafka may lose."""

import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from service.errors import ContinuityError, FencedError
from service.lifecycle.fault_points import POINTS, InjectedFaultError
from spark_job.assembly.rebuild import OpenSessionsDifferError
from spark_job.input.offsets import Offsets, TopicPartition
from spark_job.input.reading import RecordsGoneError
from spark_job.ledger import ownership, position, savepoints
from spark_job.ledger.assembly_rules import stored_rules
from spark_job.recovery.savepoint_restore import greatest_position
from spark_job.recovery.start import RequestRefusedError
from spark_job.sink.commit import Sink
from tests.support.histories.expected_outbox import Places
from tests.support.histories.history import FINGERPRINT, MAX_ROW_BYTES, History, settings
from tests.support.histories.spark_stand_in import Frame

_BATCH_POINTS = [point for point in POINTS if point.startswith(("query.", "task.", "sink."))]
_SINK_POINTS = [point for point in POINTS if point.startswith("sink.")]
_START_POINTS = [point for point in POINTS if point.startswith("start.after")]


def run_history(of: History, steps: int, kind: str) -> None:
    """Take so many random steps of a kind, then read the input to its end."""
    acts, weights = zip(*_STEPS[kind], strict=True)
    for _ in range(steps):
        (act,) = of.chance.choices(acts, weights)
        of.steps.append(act.__name__)
        act(of)
    of.finish()


def batch(of: History) -> None:
    of.batch()


# The job's machine


def restart(of: History) -> None:
    of.restart(killed=of.chance.random() < 0.5)


def crash_in_a_batch(of: History) -> None:
    """At any point of it, once or several times in succession; sometimes the process lives on, its old connection too."""
    for _ in range(of.chance.choice([1, 1, 2, 4])):
        frame, before = of.frame(), of.count("batch")
        failed = of.fails(_BATCH_POINTS, lambda: of.process.loop.batch(frame))  # noqa: B023
        if not failed or of.count("batch") > before:
            of.note(frame.ends)
        if of.chance.random() < 0.3:
            of.former = (of.process.run_id,)
            of.start_again()
        else:
            of.restart()


def crash_with_a_batch_ahead(of: History) -> None:
    """One batch is committed while the next is computed already: the process dies before, between or after the two commits."""
    first = of.frame()
    of.process.loop.compute(first)
    second = of.frame()
    of.fails(_SINK_POINTS, lambda: of.process.loop.batch(second))
    now = position.read(of.observer)
    assert now is not None
    for frame in (first, second):
        if all(now.end.get(where, -1) >= end for where, end in frame.ends.items()):
            of.note(frame.ends)
    of.restart()


def crash_in_a_start(of: History) -> None:
    of.end(of.process.connection)
    if not of.fails(_START_POINTS, of.start_again):
        of.end(of.process.connection)
    of.start_again()


def lose_a_disk(of: History) -> None:
    shutil.rmtree(of.chance.choice(of.disks), ignore_errors=True)


def damage_a_disk(of: History) -> None:
    kept = {".sessions", ".segment", ".events"}
    files = [file for disk in of.disks for file in disk.rglob("*.*") if file.suffix in kept]
    for file in sorted(files, key=lambda file: (file.parent, file.suffix, file.stat().st_size)):
        data = bytearray(file.read_bytes())
        if data and of.chance.random() < 0.7:
            data[of.chance.randrange(len(data))] ^= 1 << of.chance.randrange(8)
            file.write_bytes(data if of.chance.random() < 0.5 else data[: of.chance.randrange(len(data))])


def roll_a_disk_back(of: History) -> None:
    """A backup of it, or a machine that comes back."""
    disk, kept = of.chance.choice(of.disks), of.folder / "kept"
    if kept.exists():
        shutil.rmtree(disk, ignore_errors=True)
        kept.rename(disk)
    elif disk.exists():
        shutil.copytree(disk, kept)


def leave_a_zombie(of: History) -> None:
    """A run that is taken over while it has a batch in hand writes nothing of it, with another connection neither."""
    zombie, frame = of.process, of.frame()
    of.process = of.start(take_over=True)
    if of.chance.random() < 0.5:
        of.batch()
    if zombie.loop.read_to == frame.ends:
        return
    with of.connect() as other:
        sink = Sink(
            other,
            zombie.sink.position,
            run_id=zombie.run_id,
            transform_fingerprint=FINGERPRINT,
            max_row_bytes=MAX_ROW_BYTES,
        )
        zombie.loop.continued_by(sink)
        with pytest.raises(FencedError):
            zombie.loop.batch(frame)


# What people do


def save(of: History) -> None:
    """Name the current position s1, s2, ..."""
    name = f"s{len(savepoints.all(of.observer)) + 1}"
    with of.process.connection.transaction():
        ownership.lock_and_check(of.process.connection, of.process.run_id)
        savepoints.create(of.process.connection, name)
    of.expected.saved[name] = dict(of.expected.now.position)


def save_earlier(of: History) -> None:
    """Name the newest position that has read nothing at some offsets or above: of the newest generation that has one."""
    positions = [
        (generation, Offsets.from_json(ends))
        for generation, ends, _ in of.observer.execute(
            "SELECT generation, start_offsets, 0 AS batch_id FROM outbox.generation"
            " UNION ALL SELECT generation, end_offsets, batch_id FROM outbox.batch WHERE kind = 'stream'"
            " ORDER BY generation, batch_id"
        )
    ]
    _, base = of.chance.choice(positions)
    bounds = Offsets({where: end + of.chance.choice([0, 0, 1, 5]) for where, end in base.items()})
    generation, end = [
        each for each in positions if all(each[1].at(where) <= bound for where, bound in bounds.items())
    ][-1]
    name = f"s{len(savepoints.all(of.observer)) + 1}"
    with of.process.connection.transaction():
        ownership.lock_and_check(of.process.connection, of.process.run_id)
        made = savepoints.create(of.process.connection, name, bounds)
    assert (made.generation, made.end.to_json()) == (generation, end.to_json())
    began = of.expected.generations[generation - 1].start
    of.expected.saved[name] = {where: replace(began[where], end=offset) for where, offset in end.items()}


def restore(of: History) -> None:
    if of.expected.saved and of.chance.random() < 0.5:
        reissue(of, of.chance.choice(list(of.expected.saved)))
    else:
        skip(of)


def skip(of: History) -> None:
    """Continue at the greatest position of all time."""
    found = greatest_position(of.observer)
    places, flags = after_retention(of, of.expected.greatest, found.open.safe(found.end))
    of.open_by_request({"policy": "skip"}, flags, places, of.expected.now.revision)


def reissue(of: History, name: str) -> None:
    """Go back to a savepoint."""
    found = savepoints.get(of.observer, name)
    places, flags = after_retention(of, of.expected.saved[name], found.safe)
    if any(earliest for where, earliest in of.log.earliest.items() if where not in places):
        flags |= {"--accept-data-loss"}  # of a partition that was added since
    if found.assembly != stored_rules(of.settings):
        flags |= {"--accept-changed-assembly"}
    revision = of.expected.greatest_revision + 1
    of.open_by_request({"savepoint": name, "policy": "reissue"}, flags, places, revision)


def die_while_opening(of: History) -> None:
    """Killed between the insert of a generation and its first batch: the next start uses the generation as it stands."""
    restore(of)
    with suppress(InjectedFaultError):
        of.fails(["query.before_action"], of.batch)
    of.restart()


def change_the_rules(of: History) -> None:
    which = of.chance.choice([(60, 5, "dead_letter"), (20, 5, "emit"), (150, 3, "emit")])
    of.settings = settings(*which, only_silence=which[0] == 20, clock_records=which[0] == 150)
    now = of.expected.now
    if of.rules != now.rules:
        of.open_by_flags({"--accept-changed-assembly"}, now.position, now.revision)


# Kafka


def add_the_partition(of: History) -> None:
    of.log.visible = len(of.log.partitions)


def expire(of: History) -> None:
    """Retention takes what nobody needs any more."""
    now = position.read(of.observer)
    assert now is not None
    needed = [now.safe_offsets, *(each.safe for each in savepoints.all(of.observer))]
    for number, partition in enumerate(of.log.partitions):
        where = of.log.where(number)
        greatest = of.expected.greatest.get(where)
        safe = [offsets.at(where) for offsets in needed] + [greatest.safe if greatest else 0]
        partition.earliest = max(partition.earliest, min(safe))


def lose_the_beginning(of: History) -> None:
    """Retention takes what is needed."""
    where = any_partition(of)
    partition = of.log.partitions[where.partition]
    partition.earliest = of.chance.randint(partition.earliest, len(partition.log))
    if of.chance.random() < 0.5 and partition.earliest <= of.process.loop.read_to.at(where):
        # The running job does not care while it has what is open; to find it again, it is too late.
        with suppress(RecordsGoneError):
            of.batch()
    go_on_after_losses(of, {})


def lose_the_end(of: History) -> None:
    """Where a reissue continues, also what it has not yet reached again."""
    if of.expected.saved and of.chance.random() < 0.5:
        reissue(of, of.chance.choice(list(of.expected.saved)))
    where = any_partition(of)
    partition = of.log.partitions[where.partition]
    read = max(of.expected.now.position[where].end, of.expected.greatest[where].end)
    if partition.earliest < read:
        cut = of.chance.randint(partition.earliest, read - 1)
        of.log.cut(where.partition, cut)
        go_on_after_losses(of, {where: cut})
        of.log.go_on(where.partition)


def make_the_topic_again(of: History) -> None:
    before, frame, loop = of.count("batch"), of.frame(), of.process.loop
    of.log.make()
    if frame.ends != loop.read_to and of.chance.random() < 0.5:
        # Spark reads on without a word.
        frame = Frame(of.log, loop.read_to, frame.ends, of.chance, of.disks, loop.columns)
        with pytest.raises((ContinuityError, OpenSessionsDifferError)):
            loop.batch(frame)
        assert of.count("batch") == before
    of.expected.greatest = {}
    of.open_by_flags({"--accept-new-topic"}, {}, of.expected.now.revision)
    for name in of.expected.saved:
        with pytest.raises(RequestRefusedError, match="was deleted and created again"):
            of.ask({"savepoint": name, "policy": "reissue"})
        of.start_again()
    of.expected.saved = {}


def any_partition(of: History) -> TopicPartition:
    """One that the outbox knows."""
    now = position.read(of.observer)
    assert now is not None
    return of.chance.choice([where for where in now.end if where.topic_id == of.log.topic_id])


def go_on_after_losses(of: History, cuts: Mapping[TopicPartition, int]) -> None:
    """By the rules of docs/recovery.md: at the cut, and at max(end, earliest); what was open is what is left of it."""
    now = position.read(of.observer)
    assert now is not None
    places = after_cut(of, of.expected.now.position, now.safe_offsets, cuts)
    for name, saved in of.expected.saved.items():
        of.expected.saved[name] = after_cut(of, saved, savepoints.get(of.observer, name).safe, cuts)
    for where in cuts:
        del of.expected.greatest[where]
    places, flags = after_retention(of, places, now.safe_offsets)
    if cuts:
        flags |= {"--accept-truncation"}
    if flags:
        revision = of.expected.greatest_revision + 1 if cuts else of.expected.now.revision
        of.open_by_flags(flags, places, revision)
    else:
        of.restart()


def after_cut(of: History, places: Places, safe: Offsets, cuts: Mapping[TopicPartition, int]) -> Places:
    """What is left of these places where Kafka has lost its end. `safe`: their safe offsets in the outbox."""
    left = dict(places)
    for where, cut in cuts.items():
        if (place := places.get(where)) is not None:
            log = of.log.partitions[where.partition].log
            if cut < place.end:
                place = place.lost(cut, min(safe.at(where), cut))
            left[where] = replace(place, log=log)
    return left


def after_retention(of: History, places: Places, safe: Offsets) -> tuple[Places, set[str]]:
    """Where they begin, and the flag that this needs."""
    left, flags = dict(places), set[str]()
    for where, place in places.items():
        earliest = of.log.earliest.at(where)
        begin = min(safe.at(where), place.end)
        if begin < earliest:
            flags = {"--accept-data-loss"}
            end = max(place.end, earliest)
            left[where] = place.lost(end, max(begin, earliest))
    return left, flags


Act = Callable[[History], Any]
_CRASHES: tuple[tuple[Act, int], ...] = (
    (batch, 50),
    (crash_in_a_batch, 10),
    (crash_with_a_batch_ahead, 6),
    (crash_in_a_start, 3),
    (restart, 3),
    (lose_a_disk, 4),
    (damage_a_disk, 3),
    (roll_a_disk_back, 3),
    (add_the_partition, 2),
    (leave_a_zombie, 3),
)
_STEPS: Mapping[str, tuple[tuple[Act, int], ...]] = {
    "restores": (*_CRASHES, (save, 6), (restore, 6), (die_while_opening, 4), (expire, 4)),
    "rules": (*_CRASHES, (save, 4), (restore, 4), (change_the_rules, 6)),
    "earlier": (*_CRASHES, (save_earlier, 8), (restore, 8), (change_the_rules, 3), (expire, 2)),
    "losses": (
        *_CRASHES,
        (save, 5),
        (restore, 5),
        (lose_the_beginning, 6),
        (lose_the_end, 6),
        (make_the_topic_again, 2),
    ),
}
KINDS = tuple(_STEPS)
