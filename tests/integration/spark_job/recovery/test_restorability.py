"""`spark-job savepoint list` says of a savepoint what a restore would answer, in each state of Kafka and of the settings."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import pytest

from db.connection import Connection
from db.statements import queries
from service.errors import ContinuityError
from spark_job import OutputEvent
from spark_job.input.offsets import Offsets, TopicPartition
from spark_job.ledger import position, savepoints
from spark_job.recovery.findings import AcceptedRisks, Input
from spark_job.recovery.savepoint_restore import Restore, greatest_position, open_restored, restorability
from tests.support.sink.batches import P0, P1, TOPIC_ID, SinkRun, session, still_open

_WRITER = queries("spark_job", "writer")
EVENT = [OutputEvent("out", b"1")]
P2, OTHER = TopicPartition(TOPIC_ID, 2), TopicPartition("other", 0)
LOSS, CHANGED = "--accept-data-loss", "--accept-changed-assembly"


@dataclass(frozen=True)
class Case:
    """What has changed since the savepoint, which ends at (40, 20) with a session open since 31 in partition 0."""

    state: str
    flags: list[str] | None
    earliest: Mapping[TopicPartition, int] = field(default_factory=dict)
    latest: Mapping[TopicPartition, int] = field(default_factory=dict)
    topics: Mapping[str, str] = field(default_factory=lambda: {"input": TOPIC_ID})
    assembly: Mapping[str, Any] = field(default_factory=dict)

    @property
    def now(self) -> Input:
        """The input as Kafka and the settings have it."""
        ids = set(self.topics.values())
        earliest, latest = (
            Offsets({where: offset for where, offset in both.items() if where.topic_id in ids})
            for both in ({P0: 0, P1: 0, **self.earliest}, {P0: 90, P1: 30, **self.latest})
        )
        return Input(self.topics, earliest, latest, self.assembly)


CASES = {
    "nothing": Case("alive", []),
    "records that no open session needs are deleted": Case("alive", [], earliest={P0: 31, P1: 20}),
    "a record of an open session is deleted": Case("expired", [LOSS], earliest={P0: 32}),
    "records that were never read are deleted": Case("expired", [LOSS], earliest={P1: 21}),
    "a partition is added": Case("alive", [], earliest={P2: 0}, latest={P2: 7}),
    "the beginning of an added partition is deleted": Case(
        "expired", [LOSS], earliest={P2: 3}, latest={P2: 7}
    ),
    "the topic is made again": Case("expired", None, topics={"input": "other"}, latest={OTHER: 5}),
    "the topic is no input any more": Case("alive", [], topics={"else": "other"}, latest={OTHER: 5}),
    "a topic is added, of which much is deleted": Case(
        "alive", [], topics={"input": TOPIC_ID, "else": "other"}, earliest={OTHER: 50}, latest={OTHER: 90}
    ),
    "the topic ends before the savepoint": Case("expired", None, latest={P0: 39}),
    "the topic ends before what was read since": Case("expired", None, latest={P0: 59}),
    "the settings": Case("changed", [CHANGED], assembly={"timeout_s": 90}),
    "the settings, and a record is deleted": Case(
        "expired", [LOSS, CHANGED], earliest={P0: 32}, assembly={"timeout_s": 90}
    ),
    "the settings, and the topic is made again": Case(
        "expired", None, topics={"input": "other"}, assembly={"timeout_s": 90}
    ),
}


@pytest.mark.guarantee(168)
def test_the_list_says_what_a_restore_answers(connection: Connection) -> None:
    sink_run = SinkRun(connection)
    sink_run.plan(0, (0, 0), (40, 20))
    sink_run.write(0, session("a", 0, 19, EVENT), still_open(0, 31))
    with connection.transaction():
        connection.execute(_WRITER["lock"])
        savepoint = savepoints.create(connection, "monday")
    sink_run.plan(1, (40, 20), (60, 20))
    sink_run.write(1, session("b", 40, 59, EVENT))
    read = greatest_position(connection).end

    for name, case in CASES.items():
        found = restorability(savepoint, case.now, read)
        assert (found.state, found.flags) == (case.state, case.flags), name
        for data_loss, changed_assembly in product((False, True), repeat=2):
            given = {flag for flag, is_given in ((LOSS, data_loss), (CHANGED, changed_assembly)) if is_given}
            accepted = AcceptedRisks(data_loss=data_loss, changed_assembly=changed_assembly)
            refusal = refusal_of(connection, case.now, accepted)
            assert (refusal is None) == (found.flags is not None and given >= set(found.flags)), (name, given)
            if refusal is not None and not given:
                assert all(reason in refusal for reason in found.reasons), name


def refusal_of(connection: Connection, now: Input, accepted: AcceptedRisks) -> str | None:
    """What a reissue from the savepoint is refused with, None where it is not."""
    at = position.read(connection)
    assert at is not None
    try:
        open_restored(connection, at, Restore("monday", "reissue", accepted), now)
    except ContinuityError as error:
        return str(error)
    return None
