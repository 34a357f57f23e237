"""A later output that covers a letter resolves it, in the transaction that stores the output."""

from typing import Any

import pytest

from db.connection import Connection
from db.statements import queries
from spark_job import OutputEvent
from spark_job.input.offsets import Offsets
from spark_job.ledger import position
from spark_job.sink.batch_result import SessionRow
from spark_job.sink.covered_letters import Horizon
from tests.support.outbox.letters import failed, states, unended, with_letters
from tests.support.sink.batches import P0, P1, SinkRun, letter, session, still_open

_LETTERS = queries("spark_job", "letters")

OUT = [OutputEvent("t", b"v")]


def reading_again(connection: Connection, revision: int = 1) -> SinkRun:
    """A generation that reads everything again: its first batch goes to 100, its second to 200."""
    sink_run = SinkRun(connection, revision=revision)
    sink_run.plan(0, (0, 0), (100, 50))
    sink_run.plan(1, (100, 50), (200, 90))
    return sink_run


@pytest.mark.guarantee(65)
def test_a_session_of_a_later_generation_resolves_the_letters_that_it_covers(connection: Connection) -> None:
    with_letters(
        connection,
        failed("same", 10),
        unended("longer", 20, 30),
        letter("orphan", 44, 44, "no_start"),
        failed("twice", 50),
        failed("twice", 60),
    )
    sink_run = reading_again(connection)
    sink_run.write(
        0,
        session("same", 10, 12, OUT),
        session("longer", 20, 90, OUT),
        session("orphan", 40, 49, []),
        session("twice", 60, 62, OUT),
        session("twice", 50, 52, OUT),
    )
    assert set(states(connection).values()) == {("resolved", 2)}
    rows = connection.execute(
        "SELECT count(*), count(*) FILTER (WHERE state_changed_at > created_at) FROM outbox.dead_letter"
    )
    assert rows.fetchone() == (5, 5)


def test_a_session_that_ends_in_a_later_batch_resolves_a_letter_that_closed_long_before(
    connection: Connection,
) -> None:
    """With a longer timeout: the letter closed at 30, the session at 150."""
    with_letters(connection, unended("k", 20, 30))
    sink_run = reading_again(connection)
    sink_run.write(0, still_open(0, 20))
    assert states(connection) == {"k": ("open", None)}
    sink_run.write(1, session("k", 20, 150, OUT), sink=sink_run.new_sink())
    assert states(connection) == {"k": ("resolved", 3)}


@pytest.mark.guarantee(65)
@pytest.mark.parametrize("reason", ["timed_out", "transform_failed"])
def test_a_session_that_timed_out_covers_its_letter_also_where_a_duplicate_was_dropped_behind_it(
    connection: Connection, reason: str
) -> None:
    """A letter's last offset is that of the duplicate; a session ends at an event that it has."""
    kept = letter("k", 10, 90, reason, [b"a", b"b", b"c"])
    with_letters(connection, kept | {"last_offset": 14})
    reading_again(connection).write(0, session("k", 10, 12, OUT))
    assert states(connection) == {"k": ("resolved", 2)}


@pytest.mark.guarantee(65)
@pytest.mark.parametrize(
    "closed",
    [
        session("other", 10, 12, OUT),
        session("k", 10, 12, OUT, source=1),
        session("k", 11, 12, OUT),
        session("k", 10, 11, OUT),
        session("k", 20, 30, OUT),
    ],
    ids=["another key", "another partition", "starts later", "ends earlier", "elsewhere"],
)
def test_other_sessions_leave_it_open(connection: Connection, closed: dict[str, Any]) -> None:
    with_letters(connection, failed("k", 10))
    reading_again(connection).write(
        0, session("k", 0, 5, OUT), closed
    )  # of that key, so that it is looked at
    assert states(connection) == {"k": ("open", None)}


def test_a_malformed_record_within_a_session_is_resolved_by_its_own_letter_of_a_reissue_alone(
    connection: Connection,
) -> None:
    """The session does not hold it, whoever reads it again."""
    with_letters(connection, letter("k", 11, 11, "malformed"))
    reading_again(connection).write(0, session("k", 10, 95, OUT))
    assert judgements(connection) == [("malformed", 11, 0, "open", None)]
    reading_again(connection, revision=2).write(
        0, letter("k", 11, 11, "malformed"), session("k", 10, 95, OUT)
    )
    assert judgements(connection) == [("malformed", 11, 0, "resolved", 3), ("malformed", 11, 2, "open", None)]


@pytest.mark.guarantee(65)
@pytest.mark.parametrize("key", ["k", None], ids=["with a key", "without one"])
def test_a_letter_that_a_reissue_writes_again_resolves_the_older_one(
    connection: Connection, key: str | None
) -> None:
    """Of what is judged the same way again one letter is open: that of the newest revision."""
    with_letters(connection, letter(key, 11, 11, "malformed"), letter("other", 11, 11, "no_start"))
    reading_again(connection).write(0, letter(key, 11, 11, "malformed"))
    assert judgements(connection) == [
        ("malformed", 11, 0, "resolved", 2),
        ("malformed", 11, 1, "open", None),
        ("no_start", 11, 0, "open", None),
    ]


@pytest.mark.guarantee(65)
def test_a_letter_of_more_events_resolves_the_older_ones_about_a_part_of_them(connection: Connection) -> None:
    """With a longer timeout what was two letters is one; one that ends later says something else."""
    with_letters(
        connection,
        unended("k", 20, 30),
        unended("k", 40, 50),
        unended("k", 60, 75, number=8),
        failed("k", 10),
    )
    reading_again(connection).write(0, unended("k", 20, 70, number=45))
    assert judgements(connection) == [
        ("timed_out", 20, 0, "resolved", 2),
        ("timed_out", 20, 1, "open", None),
        ("timed_out", 40, 0, "resolved", 2),
        ("timed_out", 60, 0, "open", None),
        ("transform_failed", 10, 0, "open", None),
    ]


def test_a_generation_that_sends_nothing_again_resolves_no_letter_by_a_letter(connection: Connection) -> None:
    """It has the revision of the letters before it."""
    with_letters(connection, letter("k", 11, 11, "malformed"), revision=1)
    sink_run = SinkRun(connection, Offsets({P0: 100, P1: 50}), revision=1, reason="changed_assembly")
    sink_run.plan(0, (100, 50), (200, 90))
    sink_run.write(0, letter("k", 11, 120, "timed_out"))
    assert [found[3] for found in judgements(connection)] == ["open", "open"]


@pytest.mark.guarantee(65)
def test_an_older_revision_resolves_nothing_of_a_newer_one(connection: Connection) -> None:
    """The newer transform failed; that an older one once did not is no answer."""
    with_letters(connection, failed("k", 10), revision=2)
    reading_again(connection, revision=1).write(0, session("k", 10, 12, OUT))
    assert states(connection) == {"k": ("open", None)}


@pytest.mark.guarantee(66)
def test_discarded_letters_stay_discarded(connection: Connection) -> None:
    with_letters(connection, failed("k", 10))
    connection.execute("UPDATE outbox.dead_letter SET state = 'discarded'")
    reading_again(connection).write(0, session("k", 10, 12, OUT))
    assert states(connection) == {"k": ("discarded", None)}


def test_a_letter_is_resolved_by_the_part_that_holds_its_session(connection: Connection) -> None:
    big = [OutputEvent("t", b"x" * 900)]
    with_letters(connection, failed("k", 10), failed("k", 20))
    sink_run = reading_again(connection)
    sink_run.write(
        0, session("k", 10, 12, big), session("k", 20, 22, big), sink=sink_run.new_sink(max_row_bytes=1_000)
    )
    batches = connection.execute(
        "SELECT resolved_batch FROM outbox.dead_letter ORDER BY first_offset"
    ).fetchall()
    assert batches == [(2,), (3,)]


@pytest.mark.guarantee(65)
def test_resolving_is_part_of_the_batch(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    with_letters(connection, failed("k", 10))
    sink_run = reading_again(connection)

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("after the letters")

    monkeypatch.setattr("spark_job.sink.ledger_rows.insert_rows", fail)
    with pytest.raises(RuntimeError, match="after the letters"):
        sink_run.write(0, session("k", 10, 12, OUT))
    assert states(connection) == {"k": ("open", None)}


def test_a_generation_that_reads_nothing_again_never_asks(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ordinary case costs nothing: the horizon is empty once every session that could cover a letter has closed."""
    with_letters(connection, failed("k", 10), failed("later", 50))
    execute = connection.execute
    names = {_LETTERS["horizon"]: "horizon", _LETTERS["resolve_covered"]: "resolve_covered"}
    asked: list[str] = []

    def counted(query: Any, *arguments: Any, **options: Any) -> Any:
        asked.extend([names[query]] if query in names else [])
        return execute(query, *arguments, **options)

    monkeypatch.setattr(connection, "execute", counted)
    sink_run = reading_again(connection)
    sink_run.write(0, session("x", 70, 80, OUT), still_open(0, 50))
    assert asked == ["horizon"]
    assert may_be_covered(connection)
    sink_run.write(1, session("y", 50, 120, OUT))
    assert asked.count("resolve_covered") == 1
    assert not may_be_covered(connection)
    sink_run.plan(2, (200, 90), (300, 90))
    asked.clear()
    sink_run.write(2, session("z", 210, 220, OUT), sink=sink_run.new_sink())
    assert asked == ["horizon"]


def test_a_start_reads_no_more_however_many_letters_are_open(connection: Connection) -> None:
    """Those before the position are covered by nothing that comes."""
    with_letters(connection, failed("k", 10))
    SinkRun(connection, Offsets({P0: 500_000, P1: 50}), reason="changed_assembly")
    few = blocks_of_the_horizon(connection)
    many_letters(connection)
    assert blocks_of_the_horizon(connection) <= few + 10


def test_a_session_visits_no_later_letters_of_its_key_however_many_there_are(connection: Connection) -> None:
    """A producer makes them with an event each, and the writer lock is held meanwhile."""
    with_letters(connection, failed("k", 10))
    reading_again(connection).write(0, session("other", 10, 12, OUT), session("k", 10, 12, OUT))
    query = _LETTERS["resolve_covered"], {"keys": ["k"], "first_batch": 2, "last_batch": 2}
    few = blocks(connection, *query)
    many_letters(connection)
    assert blocks(connection, *query) <= few + 10


@pytest.mark.parametrize("generations", [1, 3])
@pytest.mark.parametrize(
    "query", [_LETTERS["standings"], _LETTERS["was_read"]], ids=["standings", "was_read"]
)
def test_a_retry_visits_no_earlier_letters_of_its_key_however_many_there_are(
    connection: Connection, query: Any, generations: int
) -> None:
    """A producer makes them with an event each; each letter that is retried asks, before the writer lock and under it."""
    with_letters(connection, failed("k", 30_000))
    for revision in range(1, generations):
        reading_again(connection, revision=revision)
    values = {"ids": [1], "keys": ["k"], "topic_ids": [P0.topic_id], "partitions": [0], "firsts": [25_000]}
    values |= {"lasts": [25_001], "from_batch": 2, "to_batch": 1}
    few = blocks(connection, query, values)
    many_letters(connection)
    assert blocks(connection, query, values) <= few + 5 * generations


def many_letters(connection: Connection) -> None:
    """Add 20,000 open letters with the first one's key."""
    connection.execute(
        "INSERT INTO outbox.dead_letter (topic_id, topic, partition, first_offset, last_offset, closing_offset, reason, generation,"
        " batch_id, session_key, detail, event_count, event_offsets, event_times_ms, event_values)"
        " SELECT topic_id, topic, partition, n, n, n, 'no_start', generation, batch_id, session_key, detail, 1, ARRAY[n], ARRAY[n],"
        " ARRAY[''::bytea] FROM outbox.dead_letter CROSS JOIN generate_series(1000, 20999) n"
    )
    connection.execute("SET ROLE NONE")
    connection.execute("ANALYZE outbox.dead_letter")
    connection.execute("SET ROLE outbox_writer")


def blocks_of_the_horizon(connection: Connection) -> int:
    """How many blocks of the database the start's question touches."""
    asked: list[Any] = []

    class Watched:
        def execute(self, query: Any, parameters: Any) -> Any:
            asked.extend((query, parameters))
            return connection.execute(query, parameters)

    at = position.read(connection)
    assert at is not None
    Horizon.read(Watched(), at)  # type: ignore[arg-type]
    return blocks(connection, *asked)


def blocks(connection: Connection, query: Any, parameters: Any) -> int:
    ((plan,),) = connection.execute("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + query, parameters).fetchall()
    top = plan[0]["Plan"]
    return int(top["Shared Hit Blocks"] + top["Shared Read Blocks"])


def may_be_covered(connection: Connection) -> bool:
    """Whether, for the next start, a session as old as P0 could cover a letter."""
    at = position.read(connection)
    assert at is not None
    oldest = SessionRow(b"any", P0, start=0, end=0, lane_hash=0, outputs=0, value_bytes=0, fields=b"")
    return bool(Horizon.read(connection, at).keys([oldest]))


def judgements(connection: Connection) -> list[tuple[Any, ...]]:
    """(reason, first offset, revision, state, resolving batch) of all letters."""
    return connection.execute(
        "SELECT reason, first_offset, revision, state, resolved_batch FROM outbox.dead_letter ORDER BY reason, first_offset, revision"
    ).fetchall()
