"""What a start finds, and how it continues: by itself where nothing can be lost or repeated, else with a person's word and not before."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg.rows import dict_row

from service.errors import ContinuityError, FencedError, UnavailableError
from service.settings import Settings
from spark_job import OutputEvent
from spark_job.input.offsets import Offsets, TopicPartition
from spark_job.input.topics import InputTopics
from spark_job.recovery import ownership, published, requests, runs
from spark_job.recovery.findings import AcceptedRisks
from spark_job.recovery.positions import generations
from spark_job.recovery.positions.description import described
from spark_job.recovery.positions.generations import Connection, Generation
from spark_job.recovery.positions.open_partitions import OpenPartition, OpenPartitions
from spark_job.recovery.published import Delivered
from spark_job.recovery.requests import JobRequest
from spark_job.recovery.savepoints import store as savepoints
from spark_job.recovery.start import RequestRefusedError, Start, Started
from tests.support.outbox.sink_batches import P0, P1, TOPIC_ID, SinkRun, letter, session, still_open
from tests.support.reference.tombstones import tombstones

MOST = 1_000
TOMBSTONES = tombstones(large=70)
OPEN = OpenPartition(40, 2, 4, 20, "digest of [40, 60]", TOMBSTONES)
ADDED = TopicPartition(TOPIC_ID, 2)
OUTPUT = [OutputEvent("out", b"1")]


def settings(**changed: Any) -> Settings:
    """Of a job that reads one topic."""
    return Settings.model_validate(
        {
            "postgres": {"dsn": "postgresql://localhost/unused"},
            "kafka": {"bootstrap_servers": "unused:9092"},
            "source": {"topics": ["input"]},
            "job": {"max_events_per_batch": MOST},
        }
        | changed
    )


@dataclass
class Input:
    """What Kafka says. It answers as `input.topics.KafkaInput` does."""

    ids: Mapping[str, str] = field(default_factory=lambda: {"input": TOPIC_ID})
    earliest: Mapping[TopicPartition, int] = field(default_factory=lambda: {P0: 0, P1: 0})
    latest: Mapping[TopicPartition, int] = field(default_factory=lambda: {P0: 500, P1: 500})
    readable: Mapping[TopicPartition, int] = field(default_factory=lambda: {P0: 490, P1: 500})

    def bounds(self, _topics: InputTopics, where: str) -> Offsets:
        return Offsets({"earliest": self.earliest, "latest": self.latest, "readable": self.readable}[where])


@pytest.fixture(autouse=True)
def delivered(monkeypatch: pytest.MonkeyPatch) -> list[Delivered]:
    """What the publisher's records say."""
    found: list[Delivered] = []
    monkeypatch.setattr(published, "newest_delivered", lambda _settings, _uuid: found)
    return found


@pytest.fixture
def connection(as_writer: Callable[[], Connection]) -> Connection:
    return as_writer()


@pytest.fixture
def sink_run(connection: Connection) -> SinkRun:
    """Two batches of a job that was stopped. It has read to 100 and 50; two sessions are open in partition 0."""
    sink_run = SinkRun(connection, assembly=described(settings()))
    sink_run.plan(0, (0, 0), (70, 50))
    sink_run.write(0, session("a", 0, 9, OUTPUT), still_open(0, 40))
    savepoints.create(connection, "monday")
    sink_run.plan(1, (70, 50), (100, 50))
    sink_run.write(1, session("b", 71, 79, OUTPUT), still_open(0, 40, 60, tombstones=TOMBSTONES))
    leave(sink_run)
    return sink_run


def leave(sink_run: SinkRun, because: str = runs.STOPPED) -> None:
    """End the run."""
    runs.end(sink_run.connection, sink_run.run_id, because)
    ownership.give_back(sink_run.connection, sink_run.run_id)


def start(
    connection: Connection,
    kafka: Input | None = None,
    *accepted: str,
    of: Settings | None = None,
    request: JobRequest | None = None,
    take_over: bool = False,
    former: tuple[UUID, ...] = (),
) -> Started:
    """Start a job; it stops at once. `accepted`: names of `Accepted`."""
    kafka = kafka or Input()
    run_id = uuid4()
    begin = Start(
        of or settings(),
        run_id,
        1,
        "transform",
        AcceptedRisks(**dict.fromkeys(accepted, True)),
        take_over,
        request,
        former,
    )
    partitions = {
        topic: [where.partition for where in kafka.latest if where.topic_id == topic_id]
        for topic, topic_id in kafka.ids.items()
    }
    begun = begin.run(connection, kafka, InputTopics(kafka.ids, partitions))  # type: ignore[arg-type]
    assert ownership.read_owner(connection).run_id == run_id
    runs.end(connection, run_id, runs.STOPPED)
    ownership.give_back(connection, run_id)
    return begun


def run_row(connection: Connection) -> dict[str, Any]:
    """The newest start, as it was recorded."""
    with connection.cursor(row_factory=dict_row) as cursor:
        row = cursor.execute("SELECT * FROM outbox.run ORDER BY number DESC LIMIT 1").fetchone()
    assert row is not None
    return row


def newest(connection: Connection) -> Generation:
    found = generations.newest_generation(connection)
    assert found is not None
    return found


def begins_at(
    generation: Generation,
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, OpenPartition]]:
    """Its offsets, and what is open there."""
    return dict(generation.start), dict(generation.open)


def everything(connection: Connection) -> list[Any]:
    """What a refused start must leave as it was."""
    tables = ("generation", "run", "writer", "lane_epoch", "savepoint", "batch")
    return [
        connection.execute(f"SELECT * FROM outbox.{table} ORDER BY 1").fetchall()  # noqa: S608
        for table in tables
    ]


# By itself


@pytest.mark.parametrize(
    ("starting", "begins"), [("earliest", {P0: 7, P1: 0}), ("latest", {P0: 490, P1: 500})]
)
def test_the_first_start_stores_where_it_begins_as_numbers(
    connection: Connection, starting: str, begins: Mapping[TopicPartition, int]
) -> None:
    """`latest` is what a read_committed reader sees as the end: a transaction that is open now will be read."""
    of = settings(source={"topics": ["input"], "starting_offsets": starting})
    started = start(connection, Input(earliest={P0: 7, P1: 0}), of=of)
    generation = newest(connection)
    assert (generation.number, generation.reason, generation.revision) == (1, "first", 0)
    assert begins_at(generation) == (begins, {})
    assert generation.topics == {TOPIC_ID: "input"}
    assert generation.assembly == described(of)
    row = run_row(connection)
    assert (row["restored"], row["generation"], row["max_events"]) == ("fresh", 1, MOST)
    assert Offsets.from_json(row["resumes_at"]) == begins == started.begun.resumes_at
    # The next one reads on there, whatever the setting says.
    start(connection, Input(earliest={P0: 7, P1: 0}, readable={P0: 600, P1: 600}), of=of)
    assert (run_row(connection)["restored"], newest(connection).number) == ("position", 1)
    assert Offsets.from_json(run_row(connection)["resumes_at"]) == begins


def test_a_start_continues_where_the_ledger_ends_with_what_is_open_there(
    sink_run: SinkRun, connection: Connection
) -> None:
    started = start(connection)
    row = run_row(connection)
    assert (row["restored"], row["generation"], row["rebuild_offsets"]) == ("position", 1, 100 - 40)
    assert row["explanation"] == "continues at the ledger's position, batch 2 of generation 1"
    assert started.begun.resumes_at == {P0: 100, P1: 50}
    assert started.position.open == {P0: OPEN}
    assert newest(connection).number == 1


def test_a_partition_that_was_added_begins_at_its_earliest_record(
    sink_run: SinkRun, connection: Connection
) -> None:
    kafka = Input(earliest={P0: 0, P1: 0, ADDED: 3}, latest={P0: 500, P1: 500, ADDED: 9})
    assert start(connection, kafka).begun.resumes_at == {P0: 100, P1: 50, ADDED: 3}
    assert newest(connection).number == 1


@pytest.mark.parametrize(
    ("because", "before", "takes"),
    [
        ("UnavailableError: gone", MOST, MOST // 4),
        (None, 200, 50),  # killed
        ("JobFailedError: again", 3, 1),
        (runs.STOPPED, MOST, MOST),
    ],
)
def test_a_run_that_ended_without_a_batch_makes_the_next_one_take_fewer_events(
    sink_run: SinkRun, connection: Connection, database: str, because: str | None, before: int, takes: int
) -> None:
    start(connection)
    with psycopg.connect(database, autocommit=True) as owner:
        owner.execute(
            "UPDATE outbox.run SET ended_because = %s, ended_at = CASE WHEN %s::text IS NOT NULL THEN now() END, max_events = %s"
            " WHERE number = (SELECT max(number) FROM outbox.run)",
            [because, because, before],
        )
    assert start(connection).begun.max_events == takes
    assert run_row(connection)["max_events"] == takes


def test_a_run_that_got_on_leaves_the_next_one_its_full_batches(
    sink_run: SinkRun, connection: Connection
) -> None:
    """However it ended: the run of the fixture has written two batches."""
    leave(sink_run, "UnavailableError: gone")
    assert start(connection).begun.max_events == MOST


def test_a_topic_that_was_added_to_the_settings_opens_a_generation_by_itself(
    sink_run: SinkRun, connection: Connection
) -> None:
    added = TopicPartition("another", 0)
    kafka = Input(
        ids={"input": TOPIC_ID, "more": "another"},
        earliest={P0: 0, P1: 0, added: 5},
        latest={P0: 500, P1: 500, added: 50},
    )
    start(connection, kafka)
    generation = newest(connection)
    assert (generation.reason, generation.revision, generation.from_batch) == ("new_topic", 0, 2)
    assert generation.start == {P0: 100, P1: 50, added: 5}
    assert generation.open == {P0: OPEN}
    # Taken off the list again, and put back: it continues where it was.
    start(connection)
    assert newest(connection).start.at(added) == 5
    kafka.earliest = {P0: 0, P1: 0, added: 0}
    assert start(connection, kafka).begun.resumes_at.at(added) == 5


# With a word


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
    assert generation.assembly == described(case.of)
    assert [former.assembly for former in generation.lineage.former] == [described(settings())]
    row = run_row(connection)
    assert (row["restored"], row["generation"], row["max_events"]) == ("new_generation", 2, MOST)
    assert Offsets.from_json(row["resumes_at"]) == case.start
    assert started.position.generation == generation
    # Accepted once: the next start continues.
    start(connection, case.kafka, of=case.of)
    assert (run_row(connection)["restored"], newest(connection).number) == ("position", 2)


def test_a_revision_after_a_cut_is_greater_than_any_before(sink_run: SinkRun, connection: Connection) -> None:
    """A skip has gone back to revision 0 after a reissue: 1 is used up."""
    SinkRun(connection, Offsets({P0: 70, P1: 50}), revision=1, reason="savepoint")
    after = SinkRun(connection, Offsets({P0: 100, P1: 50}), reason="skip", assembly=described(settings()))
    leave(after)
    start(connection, Input(latest={P0: 90, P1: 500}), "truncation")
    assert newest(connection).revision == 2


def test_what_retention_took_and_nobody_needs_is_no_finding(
    sink_run: SinkRun, connection: Connection
) -> None:
    start(connection, Input(earliest={P0: 40, P1: 50}))
    assert newest(connection).number == 1


# The outbox lost its end


@pytest.mark.parametrize(
    ("batch_id", "says"),
    [
        (9, "know batch 9, the ledger ends with batch 2"),
        (2, "know another commit of batch 2"),
        (1, "of batch 1 than"),
    ],
)
def test_a_batch_that_was_delivered_and_is_not_in_the_ledger_needs_a_word(
    sink_run: SinkRun, connection: Connection, delivered: list[Delivered], batch_id: int, says: str
) -> None:
    before = everything(connection)
    delivered.append(Delivered(batch_id, uuid4()))
    with pytest.raises(ContinuityError, match="--accept-outbox-behind") as refused:
        start(connection)
    assert says in str(refused.value)
    assert everything(connection) == before
    start(connection, None, "outbox_behind")
    generation = newest(connection)
    assert (generation.reason, generation.revision) == ("outbox_behind", 0)
    assert begins_at(generation) == ({P0: 100, P1: 50}, {P0: OPEN})


def test_a_lost_end_that_was_accepted_stops_no_later_start_and_another_one_does(
    sink_run: SinkRun, connection: Connection, delivered: list[Delivered]
) -> None:
    """The publisher's lanes wait for `publisher resume`: their records stay as they are meanwhile."""
    delivered += [Delivered(9, uuid4(), epoch=2), Delivered(1, uuid4()), Delivered(7, None)]
    start(connection, None, "outbox_behind")
    start(connection)
    # Nor where the flag stayed in the environment, or another finding has opened a generation.
    start(connection, None, "outbox_behind")
    assert newest(connection).number == 2
    changed = settings(session={"timeout_s": 90.0})
    start(connection, None, "changed_assembly", of=changed)
    start(connection, of=changed)
    assert newest(connection).number == 3
    delivered[0] = Delivered(9, uuid4())
    with pytest.raises(ContinuityError, match=r"know batch 9.*--accept-outbox-behind"):
        start(connection, of=changed)


def test_what_was_delivered_and_is_in_the_ledger_or_pruned_is_no_finding(
    sink_run: SinkRun, connection: Connection, delivered: list[Delivered], database: str
) -> None:
    delivered += [
        Delivered(*row)
        for row in connection.execute("SELECT batch_id, commit_id FROM outbox.batch").fetchall()
    ]
    with psycopg.connect(database, autocommit=True) as owner:
        owner.execute("UPDATE outbox.savepoint SET batch_id = NULL")
        owner.execute("DELETE FROM outbox.batch WHERE batch_id = 1")
    # The last record in the partition of a lane that there is no more: retention has pruned its epoch, and may have pruned its batch.
    delivered.append(Delivered(2, uuid4(), epoch=0))
    start(connection)
    assert newest(connection).number == 1


def test_an_empty_outbox_of_which_something_was_delivered_needs_a_word(
    connection: Connection, delivered: list[Delivered]
) -> None:
    delivered.append(Delivered(3, uuid4()))
    with pytest.raises(ContinuityError, match="--accept-outbox-behind"):
        start(connection)
    assert generations.newest_generation(connection) is None
    start(connection, None, "outbox_behind")
    assert newest(connection).reason == "first"
    start(connection)


@pytest.mark.parametrize("is_promoted", [True, False])
def test_output_kafka_away_is_waited_for_only_where_the_server_is_another(
    sink_run: SinkRun,
    connection: Connection,
    database: str,
    monkeypatch: pytest.MonkeyPatch,
    is_promoted: bool,
) -> None:
    def away(_settings: Settings, _uuid: UUID) -> list[Delivered]:
        raise UnavailableError("Kafka does not answer")

    monkeypatch.setattr(published, "newest_delivered", away)
    if not is_promoted:
        start(connection)
        return
    with psycopg.connect(database, autocommit=True) as owner:
        owner.execute("UPDATE outbox.run SET timeline = timeline - 1")
    before = everything(connection)
    with pytest.raises(UnavailableError, match="was promoted or restored"):
        start(connection)
    assert everything(connection) == before


# Whose it is


def test_a_start_is_refused_while_another_owner_lives_and_takes_over_where_it_is_told_to(
    sink_run: SinkRun,
    connection: Connection,
    as_writer: Callable[[], Connection],
    database: str,
    delivered: list[Delivered],
) -> None:
    living, run_id = as_writer(), uuid4()
    with living.transaction():
        ownership.take_over(living, run_id, settings().job, force=False)
    with pytest.raises(FencedError, match=f"run {run_id} .* owns this outbox.*--take-over"):
        start(connection)
    with psycopg.connect(database, autocommit=True) as owner:  # may end the other's backend
        # What will be refused anyway must not end it.
        with pytest.raises(ContinuityError):
            start(owner, Input(latest={P0: 90, P1: 500}), take_over=True)
        assert ownership.read_owner(living).run_id == run_id
        delivered.append(Delivered(9, uuid4()))
        with pytest.raises(ContinuityError, match="--accept-outbox-behind"):
            start(owner, take_over=True)
        assert ownership.read_owner(living).run_id == run_id
        delivered.clear()
        start(owner, take_over=True)
    with pytest.raises(psycopg.OperationalError):
        living.execute("SELECT 1")


def test_an_owner_that_is_gone_and_a_former_run_of_this_process_are_no_obstacle(
    sink_run: SinkRun, connection: Connection, as_writer: Callable[[], Connection]
) -> None:
    hanging, run_id = as_writer(), uuid4()
    with hanging.transaction():
        ownership.take_over(hanging, run_id, settings().job, force=False)
    start(connection, former=(run_id,))


def test_kafka_is_asked_for_the_bounds_after_the_last_owners_last_commit_and_for_nothing_else_then(
    sink_run: SinkRun,
    connection: Connection,
    as_writer: Callable[[], Connection],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Bounds from before look as if Kafka had lost the input's end. Whatever else is asked is asked without the writer lock."""
    observer, under_lock = as_writer(), list[str]()

    def is_locked() -> bool:
        query = "SELECT FROM pg_locks WHERE locktype = 'advisory' AND pid = %s"
        return observer.execute(query, [connection.info.backend_pid]).fetchone() is not None

    class Watched(Input):
        def bounds(self, topics: InputTopics, where: str) -> Offsets:
            if is_locked():
                under_lock.append(where)
            return super().bounds(topics, where)

    def newest_delivered(_settings: Settings, _uuid: UUID) -> list[Delivered]:
        assert not is_locked()
        return []

    monkeypatch.setattr(published, "newest_delivered", newest_delivered)
    start(connection, Watched(), take_over=True)
    assert sorted(under_lock) == ["earliest", "latest"]


# What a command asked for


def ask(connection: Connection, **arguments: Any) -> JobRequest:
    run_id = uuid4()
    return JobRequest(requests.ask(connection, run_id, "restore", arguments), run_id, "restore", arguments)


def test_a_reissue_begins_at_the_savepoint_with_what_was_open_there(
    sink_run: SinkRun, connection: Connection
) -> None:
    asked = ask(connection, savepoint="monday", policy="reissue")
    start(connection, request=asked)
    generation = newest(connection)
    assert (generation.reason, generation.policy, generation.savepoint) == ("savepoint", "reissue", "monday")
    assert generation.revision == 1
    assert begins_at(generation) == (
        {P0: 70, P1: 50},
        {P0: OpenPartition(40, 1, 2, 10, "digest of [40]")},
    )
    assert run_row(connection)["restored"] == "savepoint"
    answer = requests.outcome(connection, asked.request_id)
    assert answer is not None
    assert answer.done
    # Killed before its first batch: the next start uses it as it stands.
    start(connection)
    assert (newest(connection).number, run_row(connection)["restored"]) == (2, "savepoint")
    assert Offsets.from_json(run_row(connection)["resumes_at"]) == {P0: 70, P1: 50}


def test_a_reissue_reads_a_partition_that_was_added_since_from_its_first_record_on(
    sink_run: SinkRun, connection: Connection
) -> None:
    kafka = Input(earliest={P0: 0, P1: 0, ADDED: 0}, latest={P0: 500, P1: 500, ADDED: 9})
    start(connection, kafka, request=ask(connection, savepoint="monday", policy="reissue"))
    assert newest(connection).start == {P0: 70, P1: 50, ADDED: 0}
    kafka.earliest = {P0: 0, P1: 0, ADDED: 3}
    asked = ask(connection, savepoint="monday", policy="reissue", accept_data_loss=True)
    start(connection, kafka, request=asked)
    assert newest(connection).start == {P0: 70, P1: 50, ADDED: 3}


def test_a_skip_ends_a_reissue_where_the_outbox_has_been_before(
    sink_run: SinkRun, connection: Connection
) -> None:
    start(connection, request=ask(connection, savepoint="monday", policy="reissue"))
    start(connection, request=ask(connection, policy="skip"))
    generation = newest(connection)
    assert (generation.number, generation.reason, generation.policy) == (3, "skip", "skip")
    assert (generation.revision, generation.savepoint) == (1, None)
    assert begins_at(generation) == ({P0: 100, P1: 50}, {P0: OPEN})


def test_a_cut_of_what_a_reissue_has_not_reached_again_needs_a_word(
    sink_run: SinkRun, connection: Connection
) -> None:
    """Or a skip would later continue behind records that nobody has read."""
    start(connection, request=ask(connection, savepoint="monday", policy="reissue"))
    kafka = Input(latest={P0: 90, P1: 500})
    with pytest.raises(ContinuityError, match=r"ends at 90, was read up to 100.*--accept-truncation"):
        start(connection, kafka)
    with pytest.raises(RequestRefusedError, match="Nothing accepts that here"):
        start(connection, kafka, request=ask(connection, savepoint="monday", policy="reissue"))
    start(connection, kafka, "truncation")
    generation = newest(connection)
    assert (generation.number, generation.revision) == (3, 2)
    assert generation.cut == {P0: 90}
    assert begins_at(generation) == (
        {P0: 70, P1: 50},
        {P0: OpenPartition(40, 1, 2, 10, "digest of [40]")},
    )
    start(connection, request=ask(connection, policy="skip"))
    assert newest(connection).start == {P0: 70, P1: 50}


@pytest.mark.parametrize(
    ("arguments", "kafka", "timeout_s", "says"),
    [
        ({"savepoint": "mondy", "policy": "reissue"}, Input(), 60, "Did you mean 'monday'"),
        ({"savepoint": None, "policy": "reissue"}, Input(), 60, "needs a savepoint"),
        (
            {"savepoint": "monday", "policy": "reissue"},
            Input(earliest={P0: 41, P1: 0}),
            60,
            "--accept-data-loss",
        ),
        (
            {"savepoint": "monday", "policy": "reissue"},
            Input(earliest={P0: 0, P1: 0, ADDED: 3}, latest={P0: 500, P1: 500, ADDED: 9}),
            60,
            r"input/2: offsets 0 to 2 \(3\).*--accept-data-loss",  # the reissue would not send them again
        ),
        ({"savepoint": "monday", "policy": "reissue"}, Input(), 90, "--accept-changed-assembly"),
        ({"savepoint": "monday", "policy": "reissue"}, Input(latest={P0: 69, P1: 500}), 60, "ends at 69"),
        ({"policy": "skip"}, Input(earliest={P0: 41, P1: 0}), 60, "--accept-data-loss"),
        ({"savepoint": "monday", "policy": "skip"}, Input(), 60, "'monday'.*--policy reissue"),
    ],
)
def test_a_request_that_cannot_be_fulfilled_is_refused_and_the_outbox_stays_as_it_was(
    sink_run: SinkRun,
    connection: Connection,
    arguments: dict[str, Any],
    kafka: Input,
    timeout_s: int,
    says: str,
) -> None:
    before = everything(connection)
    asked = ask(connection, **arguments)
    of = settings(session={"timeout_s": timeout_s})
    with pytest.raises(RequestRefusedError, match=says):
        start(connection, kafka, of=of, request=asked)
    assert everything(connection) == before
    assert (
        requests.outcome(connection, asked.request_id) is None
    )  # the job gives it, on its way to the next attempt


def test_a_request_is_not_fulfilled_where_the_database_lost_its_end_meanwhile(
    sink_run: SinkRun, connection: Connection, delivered: list[Delivered]
) -> None:
    delivered.append(Delivered(9, uuid4()))
    with pytest.raises(RequestRefusedError, match="may have lost its newest batches"):
        start(connection, request=ask(connection, policy="skip"))


def test_a_command_that_gave_up_waiting_gets_nothing_done_any_more(
    sink_run: SinkRun, connection: Connection
) -> None:
    before = everything(connection)
    asked = ask(connection, policy="skip")
    assert requests.withdraw(connection, asked.request_id)
    with pytest.raises(requests.WithdrawnError):
        start(connection, request=asked)
    assert everything(connection) == before


# From the version before


def test_an_upgraded_outbox_continues_with_whatever_is_found_open(connection: Connection) -> None:
    """Its generation names safe offsets and no digests; what silence closes on the way may have no letter yet."""
    opened = OpenPartitions({P0: OpenPartition(40, 0, 0, 0, None)})
    upgraded = SinkRun(
        connection,
        Offsets({P0: 100, P1: 50}),
        reason="upgrade",
        opened=opened,
        assembly=described(settings()),
    )
    leave(upgraded)
    started = start(connection)
    row = run_row(connection)
    assert (row["restored"], row["rebuild_offsets"]) == ("position", 60)
    assert "the start of generation 1 (upgrade)" in row["explanation"]
    assert started.begun.resumes_at == {P0: 100, P1: 50}
    assert started.position.open == opened
    with pytest.raises(ContinuityError, match=r"offsets 40 to 44 .*--accept-data-loss"):
        start(connection, Input(earliest={P0: 45, P1: 0}))
    # Its first batch tells what is open.
    upgraded.plan(0, (100, 50), (120, 50))
    with connection.transaction():
        ownership.take_over(connection, upgraded.run_id, settings().job, force=False)
    upgraded.write(0, letter("k", 41, 99, "timed_out"), still_open(0, 80))
    leave(upgraded)
    assert start(connection).position.open == {P0: OpenPartition(80, 1, 2, 10, "digest of [80]")}
