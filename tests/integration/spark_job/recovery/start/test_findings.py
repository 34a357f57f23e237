"""What could lose or repeat something needs a person's word: each finding its own, and nothing is changed before."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from db.connection import Connection
from service.errors import ContinuityError
from service.settings import Settings
from spark_job.input.offsets import Offsets, TopicPartition
from spark_job.ledger.assembly_rules import stored_rules
from spark_job.ledger.open_partitions import OpenPartition
from tests.support.recovery.starts import (
    MOST,
    OPEN,
    Input,
    everything,
    leave,
    newest,
    run_row,
    settings,
    start,
)
from tests.support.sink.batches import P0, P1, SinkRun


@dataclass(frozen=True)
class Case:
    """A finding, what the refusal says, and what accepting it opens."""

    kafka: Input
    flags: tuple[str, ...]
    says: tuple[str, ...]
    reason: str
    start: Mapping[TopicPartition, int]
    open: Mapping[TopicPartition, OpenPartition]
    revision: int = 0
    cut: Mapping[TopicPartition, int] = field(default_factory=dict)
    of: Settings = field(default_factory=settings)


NEW0, NEW1 = TopicPartition("made-again", 0), TopicPartition("made-again", 1)
CASES = {
    "changed assembly": Case(
        Input(),
        ("changed_assembly",),
        ("timeout_s: 60 -> 90.0", "Sessions that are open stay open"),
        "changed_assembly",
        {P0: 100, P1: 50},
        {P0: OPEN},
        of=settings(session={"timeout_s": 90.0}),
    ),
    "topic made again": Case(
        Input(ids={"input": "made-again"}, earliest={NEW0: 2, NEW1: 0}, latest={NEW0: 9, NEW1: 0}),
        ("new_topic",),
        ("its id is made-again", "2 are open, partition 0: since offset 40"),
        "new_topic",
        {NEW0: 2, NEW1: 0},
        {},
    ),
    "cut behind what is open": Case(
        Input(latest={P0: 90, P1: 500}),
        ("truncation",),
        ("input/0: ends at 90, was read up to 100",),
        "truncation",
        {P0: 90, P1: 50},
        {P0: OPEN.unproven(40)},
        1,
        {P0: 90},
    ),
    "cut below what is open": Case(
        Input(latest={P0: 30, P1: 10}),
        ("truncation",),
        ("input/0: ends at 30", "input/1: ends at 10"),
        "truncation",
        {P0: 30, P1: 10},
        {},
        1,
        {P0: 30, P1: 10},
    ),
    "offsets of open sessions deleted": Case(
        Input(earliest={P0: 55, P1: 50}),
        ("data_loss",),
        ("input/0: offsets 40 to 54 (15)", "Up to 2 open sessions", "0 records were never read"),
        "data_loss",
        {P0: 100, P1: 50},
        {P0: OPEN.unproven(55)},
    ),
    "unread offsets deleted": Case(
        Input(earliest={P0: 110, P1: 57}),
        ("data_loss",),
        ("offsets 40 to 109 (70)", "offsets 50 to 56 (7)", "17 records were never read"),
        "data_loss",
        {P0: 110, P1: 57},
        {P0: OPEN.unproven(110)},
    ),
    "cut in one partition, deleted in another": Case(
        Input(earliest={P0: 0, P1: 60}, latest={P0: 90, P1: 500}),
        ("truncation", "data_loss"),
        ("ends at 90", "offsets 50 to 59"),
        "truncation",
        {P0: 90, P1: 60},
        {P0: OPEN.unproven(40)},
        1,
        {P0: 90},
    ),
    "changed assembly and deleted offsets": Case(
        Input(earliest={P0: 55, P1: 0}),
        ("data_loss", "changed_assembly"),
        ("timeout_s", "offsets 40 to 54"),
        "data_loss",
        {P0: 100, P1: 50},
        {P0: OPEN.unproven(55)},
        of=settings(session={"timeout_s": 90.0}),
    ),
}


@pytest.mark.guarantee(84)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_what_could_lose_or_repeat_something_needs_a_word_and_each_its_own(
    sink_run: SinkRun, connection: Connection, case: Case
) -> None:
    before = everything(connection)
    every = ("outbox_behind", "new_topic", "truncation", "data_loss", "changed_assembly")
    for missing in case.flags:
        given = [flag for flag in every if flag != missing]
        with pytest.raises(ContinuityError) as refused:
            start(connection, case.kafka, *given, of=case.of)
        assert f"spark-job run --accept-{missing.replace('_', '-')}" in str(refused.value)
        assert everything(connection) == before
    with pytest.raises(ContinuityError) as refused:
        start(connection, case.kafka, of=case.of)
    text = str(refused.value)
    assert all(
        part in text for part in (*case.says, *(f"--accept-{f.replace('_', '-')}" for f in case.flags))
    )
    assert everything(connection) == before

    started = start(connection, case.kafka, *case.flags, of=case.of)
    generation = newest(connection)
    assert (generation.number, generation.reason, generation.revision) == (2, case.reason, case.revision)
    assert (generation.from_generation, generation.from_batch) == (1, 2)
    assert (generation.start, generation.open, generation.cut) == (case.start, case.open, case.cut)
    assert generation.assembly == stored_rules(case.of)
    assert [former.assembly for former in generation.lineage.former] == [stored_rules(settings())]
    row = run_row(connection)
    assert (row["restored"], row["generation"], row["max_events"]) == ("new_generation", 2, MOST)
    assert Offsets.from_json(row["resumes_at"]) == case.start
    assert started.position.generation == generation
    # Accepted once: the next start continues.
    start(connection, case.kafka, of=case.of)
    assert (run_row(connection)["restored"], newest(connection).number) == ("position", 2)


@pytest.mark.guarantee(51)
def test_a_revision_after_a_cut_is_greater_than_any_before(sink_run: SinkRun, connection: Connection) -> None:
    """A skip has gone back to revision 0 after a reissue: 1 is used up."""
    SinkRun(connection, Offsets({P0: 70, P1: 50}), revision=1, reason="savepoint")
    after = SinkRun(connection, Offsets({P0: 100, P1: 50}), reason="skip", assembly=stored_rules(settings()))
    leave(after)
    start(connection, Input(latest={P0: 90, P1: 500}), "truncation")
    assert newest(connection).revision == 2


def test_what_retention_took_and_nobody_needs_is_no_finding(
    sink_run: SinkRun, connection: Connection
) -> None:
    start(connection, Input(earliest={P0: 40, P1: 50}))
    assert newest(connection).number == 1
