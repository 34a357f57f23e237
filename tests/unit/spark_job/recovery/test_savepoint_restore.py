"""The greatest position of all time: where each partition got to, and who judges what is open there. What is said of a savepoint."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from spark_job.input.offsets import Offsets, TopicPartition
from spark_job.ledger.open_partitions import OpenPartition, OpenPartitions
from spark_job.ledger.rules_lineage import Former, Lineage
from spark_job.ledger.savepoints import Savepoint
from spark_job.recovery.findings import Input
from spark_job.recovery.savepoint_restore import greatest_of, restorability

P0, P1, P2 = (TopicPartition("id", partition) for partition in range(3))
A, B = {"timeout_s": 1}, {"timeout_s": 2}
Places = Mapping[TopicPartition, int]


def row(
    assembly: Mapping[str, Any],
    start: Places,
    end: Places,
    *,
    safe: Places | None = None,
    safe_at_start: Places | None = None,
    lineage: Lineage | None = None,
) -> dict[str, Any]:
    """A generation and its newest stream row."""
    return {
        "start_offsets": Offsets(start).to_json(),
        "start_open": open_since(safe_at_start or {}),
        "cut_offsets": {},
        "lineage": (lineage or Lineage()).to_json(),
        "assembly": assembly,
        "topics": {"id": "in"},
        "end_offsets": Offsets(end).to_json(),
        "end_open": open_since(safe or {}),
    }


def open_since(safe: Places) -> dict[str, Any]:
    return OpenPartitions(
        {where: OpenPartition(offset, 1, 2, 9, "3-digest") for where, offset in safe.items()}
    ).to_json()


def test_what_is_open_is_judged_by_those_that_judged_it() -> None:
    """A session is open since 90. B judges from 100 on; at 110 somebody skips."""
    first = row(A, {P0: 0}, {P0: 100}, safe={P0: 90})
    lineage = Lineage((Former(A, Offsets({P0: 0})),))
    second = row(B, {P0: 100}, {P0: 110}, safe={P0: 90}, safe_at_start={P0: 90}, lineage=lineage)
    found = greatest_of([first, second])
    assert found.end == {P0: 110}
    assert found.open[P0].safe == 90
    assert found.lineage.since(P0, 90, found.end, B) == [(0, A), (100, B), (110, B)]


def test_each_partition_has_the_descriptions_of_the_generation_that_its_position_is_from() -> None:
    """The second generation has read less of partition 0 than the first one."""
    first = row(A, {P0: 0, P1: 0}, {P0: 100, P1: 50}, safe={P0: 90, P1: 45})
    second = row(B, {P0: 70, P1: 40}, {P0: 80, P1: 60}, safe={P0: 75, P1: 38})
    second["lineage"] = Lineage((Former(A, Offsets({P0: 0, P1: 0})),)).to_json()
    found = greatest_of([first, second])
    assert found.end == {P0: 100, P1: 60}
    assert found.lineage.since(P0, 90, found.end, B) == [(0, A), (100, B)]
    assert found.lineage.since(P1, 38, found.end, B) == [(0, A), (40, B), (60, B)]


def test_descriptions_that_judged_nothing_that_is_open_are_forgotten() -> None:
    first = row(A, {P0: 0, P1: 0}, {P0: 100, P1: 50})
    second = row(B, {P0: 70, P1: 40}, {P0: 80, P1: 60}, safe={P1: 55})
    second["lineage"] = Lineage((Former(A, Offsets({P0: 0, P1: 0})),)).to_json()
    found = greatest_of([first, second])
    assert [each.assembly for each in found.lineage.former] == [A, B]
    assert found.lineage.since(P1, 55, found.end, B) == [(40, B), (60, B)]


def test_a_savepoint_is_shown_with_what_kafka_has_after_it_and_with_what_a_restore_needs() -> None:
    end, opened = Offsets({P0: 15, P1: 20}), OpenPartitions({P0: OpenPartition(10, 2, 4, 90, "3-digest")})
    made = datetime(2026, 1, 1, tzinfo=UTC)
    savepoint = Savepoint("x", 2, 7, end, opened, Lineage(), A, {"id": "in"}, 0, made)
    earliest, latest = Offsets({P0: 10, P1: 0}), Offsets({P0: 18, P1: 25})
    found = restorability(savepoint, Input({"in": "id"}, earliest, latest, A), end)
    assert found.to_json() == {"state": "alive", "reasons": [], "flags": [], "events_after": 3 + 5}

    earliest, latest = Offsets({P0: 0, P1: 0, P2: 3}), Offsets({P0: 18, P1: 20, P2: 7})
    found = restorability(savepoint, Input({"in": "id"}, earliest, latest, B), end)
    assert (found.state, found.flags, found.events) == (
        "expired",
        ["--accept-data-loss", "--accept-changed-assembly"],
        3 + 0 + 4,
    ), "the first records of a partition added later are gone"
    assert [text.split(":")[0] for text in found.reasons] == [
        "Kafka has deleted input that is still needed",
        "the assembly rules have changed",
    ]
