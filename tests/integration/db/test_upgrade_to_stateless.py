"""Migration 0005: an outbox of the job that kept its state in Spark continues, its savepoints too, and may go back."""

import difflib
import uuid
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from db.dump import dump
from db.migrate import downgrade, upgrade
from service.errors import SchemaError, UnavailableError
from spark_job.recovery.savepoint_restore import greatest_position

Offsets = dict[str, dict[str, int]]

SETTINGS = {"end": "end_event", "timeout_s": 60}
IN_SPARK = {"buckets": 4, "shuffle_partitions": 2, "max_bucket_bytes": 9, "topics": ["events", "orders"]}
RUNS = [uuid.UUID(int=number) for number in range(10)]


class Database:
    """A database at some revision, and a connection of its owner in autocommit mode."""

    def __init__(self, dsn: str, connection: psycopg.Connection[dict[str, Any]]) -> None:
        self.dsn = dsn
        self.connection = connection

    def insert(self, table: str, **row: Any) -> None:
        """Insert a row; dicts and lists become JSON."""
        values = [Jsonb(value) if isinstance(value, dict | list) else value for value in row.values()]
        self.connection.execute(
            sql.SQL("INSERT INTO {} ({}) VALUES ({})").format(
                sql.Identifier("outbox", table),
                sql.SQL(", ").join(map(sql.Identifier, row)),
                sql.SQL(", ").join(sql.Placeholder() * len(row)),
            ),
            values,
        )

    def rows(self, table: str, order: str) -> list[dict[str, Any]]:
        """Return all rows of a table."""
        query = sql.SQL("SELECT * FROM {} ORDER BY {}").format(
            sql.Identifier("outbox", table), sql.Identifier(order)
        )
        return self.connection.execute(query).fetchall()

    def row(self, table: str, **key: Any) -> dict[str, Any]:
        """Return the one row with this key."""
        ((column, value),) = key.items()
        query = sql.SQL("SELECT * FROM {} WHERE {} = %s").format(
            sql.Identifier("outbox", table), sql.Identifier(column)
        )
        (found,) = self.connection.execute(query, [value]).fetchall()
        return found


@pytest.fixture
def at_0004(blank_database: str) -> Iterator[Database]:
    """An empty outbox of the former revision."""
    upgrade(blank_database, "0004")
    with psycopg.connect(blank_database, autocommit=True, row_factory=dict_row) as connection:
        yield Database(blank_database, connection)


def generation(number: int, start: Offsets, high_water: Offsets, **row: Any) -> dict[str, Any]:
    """A generation of revision 0004."""
    return {
        "generation": number,
        "directory_token": f"token-{number}",
        "start_offsets": start,
        "high_water": high_water,
        "topics": {"t": "events"},
        "reason": "first",
        "policy": "skip",
        "assembly": SETTINGS | IN_SPARK,
        "assembly_fingerprint": "fingerprint",
        "run_id": RUNS[number],
    } | row


def batch(
    batch_id: int, of: int, spark_batch: int, start: Offsets, end: Offsets, done: Offsets, safe: Offsets
) -> dict[str, Any]:
    """A stream row of revision 0004."""
    return {
        "batch_id": batch_id,
        "kind": "stream",
        "generation": of,
        "spark_batch": spark_batch,
        "run_id": RUNS[of],
        "start_offsets": start,
        "end_offsets": end,
        "done_offsets": done,
        "safe_offsets": safe,
        "content_hash": bytes([batch_id]) * 32,
        "transform_fingerprint": "transform",
        "sessions": batch_id,
    }


NO_OFFSETS = dict.fromkeys(("spark_batch", "start_offsets", "end_offsets", "done_offsets", "safe_offsets"))


@pytest.fixture
def old(at_0004: Database) -> Database:
    """Generation 1 read topics t and u. Generation 2 reads t alone, where Kafka had lost the end of partitions 1 and 2, and catches up in
    partition 0: it has read to 180, and all that closes below 200 is written."""
    first = {"t": {"0": 0, "1": 0, "2": 0}, "u": {"0": 400}}
    one = {"t": {"0": 100, "1": 50, "2": 50}, "u": {"0": 450}}
    two = {"t": {"0": 200, "1": 80, "2": 80}, "u": {"0": 500}}
    at_0004.insert("generation", **generation(1, first, first, topics={"t": "events", "u": "orders"}))
    at_0004.insert("batch", **batch(1, 1, 0, first, one, one, one | {"t": {"0": 90, "1": 50, "2": 50}}))
    safe = {"t": {"0": 150, "1": 55, "2": 70}, "u": {"0": 480}}
    for part in (0, 1):
        at_0004.insert("batch", **batch(2 + part, 1, 1, one, two, two, safe), part=part)
    at_0004.insert(
        "generation",
        **generation(
            2,
            {"t": {"0": 150, "1": 55, "2": 60}},
            {"t": {"0": 200, "1": 60, "2": 60}, "u": {"0": 500}},
            reason="data_loss",
            revision=1,
            policy="reissue",
            from_generation=1,
            from_batch=2,
            read_again=55,
            cut_offsets={"t": {"1": 60, "2": 60}},
        ),
    )
    at_0004.insert(
        "batch",
        **batch(
            4,
            2,
            0,
            {"t": {"0": 150, "1": 55, "2": 60}},
            {"t": {"0": 180, "1": 90, "2": 60}},
            {"t": {"0": 200, "1": 90, "2": 60}, "u": {"0": 500}},
            {"t": {"0": 170, "1": 85, "2": 60}},
        ),
    )
    at_0004.insert("batch", **batch(5, 2, 0, {}, {}, {}, {}) | NO_OFFSETS | {"kind": "retry"})
    at_0004.insert("savepoint", name="early", generation=1, batch_id=1)
    at_0004.insert("savepoint", name="cut", generation=1, batch_id=2)
    at_0004.insert("savepoint", name="start", generation=2, deleted_at="2030-01-01")
    at_0004.insert("savepoint", name="catching-up", generation=2, batch_id=4)
    at_0004.insert("dead_letter", topic_id="t", topic="events", partition=0, first_offset=5, last_offset=5, closing_offset=5,
                   reason="no_start", generation=1, batch_id=1, detail="", event_count=1, event_offsets="{}", event_times_ms="{}",
                   event_values="{}")  # fmt: skip
    at_0004.insert("run", run_id=RUNS[2], generation=2, restored="checkpoint", spark_batch=0, resumes_at={}, high_water={}, read_again=7,
                   explanation="", attempt=1, transform_fingerprint="", host="", pid=1, system_identifier=1, timeline=1)  # fmt: skip
    at_0004.insert("request", run_id=RUNS[2], kind="rescale")
    return at_0004


def opened(safe: Offsets) -> dict[str, dict[str, dict[str, int]]]:
    """The open state of partitions of which only the safe offset is known."""
    return {
        topic: {
            partition: {"safe": offset, "sessions": 0, "events": 0, "bytes": 0, "upgraded": True}
            for partition, offset in partitions.items()
        }
        for topic, partitions in safe.items()
    }


@pytest.mark.guarantee(94)
def test_a_generation_opens_at_what_was_dealt_with_and_knows_what_is_open(old: Database) -> None:
    upgrade(old.dsn)
    found = old.row("generation", generation=3)
    explanation = found.pop("explanation")
    assert explanation.startswith(
        "the schema was upgraded to 0005: generation 2 had dealt with the input up to here, with batch 4,"
    )
    assert explanation.count(".") == 0
    del found["created_at"]
    assert found == {
        "generation": 3,
        # Beyond what it had read in partition 0: sessions that close there were written by generation 1.
        "start_offsets": {"t": {"0": 200, "1": 90, "2": 60}, "u": {"0": 500}},
        # Of u, which is read no more, generation 1 knows it.
        "open_state": opened({"t": {"0": 170, "1": 85}, "u": {"0": 480}}),
        "lineage": [],
        "topics": {"t": "events"},
        "reason": "upgrade",
        "policy": "reissue",
        "revision": 1,
        "assembly": SETTINGS,
        "run_id": RUNS[2],
        "from_generation": 2,
        "from_batch": 4,
        "savepoint": None,
        "cut_offsets": None,
        "accepted_deliveries": None,
    }


def test_what_is_there_stays_without_what_stood_for_spark(old: Database) -> None:
    upgrade(old.dsn)
    assert [row["assembly"] for row in old.rows("generation", "generation")] == [SETTINGS] * 3
    assert [row["open_state"] for row in old.rows("generation", "generation")][:2] == [{}, {}]
    ledger = old.rows("batch", "batch_id")
    assert [(row["batch_id"], row["part"], row["sessions"]) for row in ledger] == [
        (1, 0, 1), (2, 0, 2), (3, 1, 3), (4, 0, 4), (5, 0, 5)
    ]  # fmt: skip
    assert ledger[0]["end_offsets"] == {"t": {"0": 100, "1": 50, "2": 50}, "u": {"0": 450}}
    # What was open at the end of each generation: a skip may continue there.
    assert [row["open_state"] for row in ledger] == [
        None,
        None,
        opened({"t": {"0": 150, "1": 55, "2": 70}, "u": {"0": 480}}),
        opened({"t": {"0": 170, "1": 85}}),
        None,
    ]
    assert len(old.rows("dead_letter", "dead_letter_id")) == 1
    (run,) = old.rows("run", "number")
    assert (run["restored"], run["rebuild_offsets"], run["max_events"]) == ("checkpoint", 0, None)
    assert old.connection.execute("SELECT to_regclass('outbox.bucket') AS it").fetchone() == {"it": None}
    assert old.connection.execute("SELECT * FROM outbox.audit_ledger").fetchall() == []


SAVEPOINTS = [
    (
        "early",
        {"t": {"0": 100, "1": 50, "2": 50}, "u": {"0": 450}},
        {"t": {"0": 90}},
        {"t": "events", "u": "orders"},
        0,
    ),
    # Generation 2 found Kafka's end at 60 in partitions 1 and 2: above it, the same offsets name other events.
    (
        "cut",
        {"t": {"0": 200, "1": 60, "2": 60}, "u": {"0": 500}},
        {"t": {"0": 150, "1": 55}, "u": {"0": 480}},
        {"t": "events", "u": "orders"},
        0,
    ),
    (
        "start",
        {"t": {"0": 200, "1": 60, "2": 60}, "u": {"0": 500}},
        {"t": {"0": 150, "1": 55}, "u": {"0": 480}},
        {"t": "events"},
        1,
    ),
    (
        "catching-up",
        {"t": {"0": 200, "1": 90, "2": 60}, "u": {"0": 500}},
        {"t": {"0": 170, "1": 85}, "u": {"0": 480}},
        {"t": "events"},
        1,
    ),
]


@pytest.mark.guarantee(94)
@pytest.mark.parametrize(("name", "end", "safe", "topics", "revision"), SAVEPOINTS)
def test_a_savepoint_holds_its_position_itself(
    old: Database, name: str, end: Offsets, safe: Offsets, topics: dict[str, str], revision: int
) -> None:
    before = old.row("savepoint", name=name)
    upgrade(old.dsn)
    assert old.row("savepoint", name=name) == before | {
        "end_offsets": end,
        "open_state": opened(safe),
        # Whoever goes back there has what was open judged by the settings of then.
        "lineage": [{"assembly": SETTINGS, "start": {}}],
        "assembly": SETTINGS,
        "topics": topics,
        "revision": revision,
    }


def test_a_skip_continues_where_an_earlier_generation_ended_with_what_was_open_there(
    at_0004: Database,
) -> None:
    """Generation 2 sends again what generation 1 has sent, and has got to 600 of 1,000."""
    start, saved, reached, greatest = ({"t": {"0": at, "1": 0}} for at in (0, 500, 600, 1_000))
    at_0004.insert("generation", **generation(1, start, start))
    at_0004.insert("batch", **batch(1, 1, 0, start, saved, saved, saved))
    at_0004.insert("batch", **batch(2, 1, 1, saved, greatest, greatest, {"t": {"0": 900, "1": 0}}))
    at_0004.insert(
        "generation",
        **generation(2, saved, saved, reason="requested", policy="reissue", revision=1, from_generation=1),
    )
    at_0004.insert("batch", **batch(3, 2, 0, saved, reached, reached, {"t": {"0": 590, "1": 0}}))
    upgrade(at_0004.dsn)
    assert at_0004.row("generation", generation=3)["start_offsets"] == reached
    with psycopg.connect(at_0004.dsn) as connection:
        found = greatest_position(connection)
    assert (found.end.to_json(), found.open.to_json()) == (greatest, opened({"t": {"0": 900}}))


def test_a_generation_without_batches_hands_over_its_own_start(at_0004: Database) -> None:
    at_0004.insert("generation", **generation(1, {"t": {"0": 30, "1": 10}}, {"t": {"0": 50, "1": 10}}))
    upgrade(at_0004.dsn)
    found = at_0004.row("generation", generation=2)
    assert found["start_offsets"] == {"t": {"0": 50, "1": 10}}
    assert found["open_state"] == opened({"t": {"0": 30}})
    assert (found["from_generation"], found["from_batch"], found["run_id"]) == (1, None, RUNS[1])


def test_the_newest_row_is_the_one_that_spark_numbered_last(at_0004: Database) -> None:
    """Retries come between, and a pruned ledger has gaps."""
    at_0004.insert("generation", **generation(1, {"t": {"0": 0}}, {"t": {"0": 0}}))
    for batch_id, end in ((7, 10), (9, 20)):
        ends = {"t": {"0": end}}
        at_0004.insert("batch", **batch(batch_id, 1, batch_id, {"t": {"0": end - 10}}, ends, ends, ends))
    at_0004.insert("batch", **batch(11, 1, 0, {}, {}, {}, {}) | NO_OFFSETS | {"kind": "requeue"})
    upgrade(at_0004.dsn)
    found = at_0004.row("generation", generation=2)
    assert (found["from_batch"], found["start_offsets"], found["open_state"]) == (9, {"t": {"0": 20}}, {})


def test_an_empty_outbox_stays_empty(at_0004: Database) -> None:
    upgrade(at_0004.dsn)
    assert at_0004.rows("generation", "generation") == []


LIVING = """UPDATE outbox.writer SET run_id = %(run)s, host = 'somewhere', pid = 4711, heartbeat_at = now(), started_at = now(),
    backend_pid = pg_backend_pid(), backend_start = (SELECT backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid())"""


@pytest.mark.guarantee(94)
@pytest.mark.parametrize("hidden", [False, True])
def test_an_owner_that_lives_is_in_the_way_of_up_and_down(old: Database, hidden: bool) -> None:
    """The start of its backend is hidden from some roles: then the pid must do."""
    refused = (
        f"the migration was refused: run {RUNS[7]} \\(pid 4711 on somewhere\\) owns this outbox and is alive: stop .* "
        "If that process is gone and only its connection is left: SELECT pg_terminate_backend"
    )
    for move, revision in ((upgrade, "0005"), (downgrade, "0004")):
        old.connection.execute(LIVING, {"run": RUNS[7]})
        if hidden:
            old.connection.execute("UPDATE outbox.writer SET backend_start = NULL")
        before = dump(old.dsn)
        with pytest.raises(SchemaError, match=refused):
            move(old.dsn, revision)
        assert dump(old.dsn) == before
        # Killed: its row stays, its backend does not.
        old.connection.execute("UPDATE outbox.writer SET backend_pid = 2147483647")
        move(old.dsn, revision)


def test_another_backend_of_the_same_pid_is_no_owner(old: Database) -> None:
    old.connection.execute(LIVING, {"run": RUNS[7]})
    old.connection.execute("UPDATE outbox.writer SET backend_start = backend_start - interval '1 day'")
    upgrade(old.dsn)
    assert old.row("generation", generation=3)["reason"] == "upgrade"


def test_no_batch_is_committed_meanwhile(old: Database) -> None:
    """The migration takes the writer lock, and gives up where somebody keeps it."""
    with old.connection.transaction():
        old.connection.execute("SELECT pg_advisory_xact_lock(hashtextextended('outbox.writer', 0))")
        with pytest.raises(UnavailableError, match="the migration gave up"):
            upgrade(old.dsn)
    upgrade(old.dsn)


@pytest.mark.guarantee(94)
def test_down_and_up_again_is_the_same_position_and_the_same_schema(old: Database) -> None:
    before, ledger = dump(old.dsn), old.rows("batch", "batch_id")
    savepoints = old.rows("savepoint", "savepoint_id")
    upgrade(old.dsn)
    newest, positions = old.row("generation", generation=3), old.rows("savepoint", "savepoint_id")
    schema = dump(old.dsn)

    downgrade(old.dsn, "0004")
    _assert_only_what_must_stay_is_new(before, dump(old.dsn))
    found = old.row("generation", generation=3)
    # In the old words: reading begins where something is open, and what closes below the high water is not written again.
    assert found["start_offsets"] == {"t": {"0": 170, "1": 85, "2": 60}, "u": {"0": 480}}
    assert found["high_water"] == newest["start_offsets"]
    assert found["assembly"] == SETTINGS | {"buckets": 8, "shuffle_partitions": 2, "topics": ["events"]}
    assert (found["reason"], found["from_generation"], found["explanation"]) == (
        "requested",
        2,
        newest["explanation"],
    )
    assert len({row["directory_token"] for row in old.rows("generation", "generation")}) == 3
    assert old.rows("savepoint", "savepoint_id") == savepoints
    again = old.rows("batch", "batch_id")
    lost = ("done_offsets", "safe_offsets", "content_hash")
    assert [_without(row, lost) for row in again] == [_without(row, lost) for row in ledger]
    assert again[0]["done_offsets"] == again[0]["safe_offsets"] == again[0]["end_offsets"]
    assert {row["content_hash"] for row in again} == {bytes(32)}

    upgrade(old.dsn)
    assert dump(old.dsn) == schema
    last = old.row("generation", generation=4)
    for column in ("start_offsets", "open_state", "topics", "policy", "revision", "assembly", "lineage"):
        assert last[column] == newest[column], column
    assert [row["name"] for row in old.rows("savepoint", "savepoint_id")] == [
        row["name"] for row in positions
    ]


def _assert_only_what_must_stay_is_new(before: str, after: str) -> None:
    """What was pruned is known to no other column, and partitions that 0009 made wider are still there."""
    lines = list(difflib.ndiff(before.splitlines(), after.splitlines()))
    assert [line for line in lines if line.startswith("- ")] == []
    new = [line[2:].strip() for line in lines if line.startswith("+ ") and line[2:].strip("- ")]
    assert [line for line in new if "pruned_seq" not in line] == [
        "-- A partition that 0009 made wider.",
        "CONTINUE WHEN EXISTS (SELECT FROM outbox.output_partition p",
        "WHERE p.from_batch <= n * batches_per_partition AND p.to_batch >= n * batches_per_partition);",
    ]


def _without(row: dict[str, Any], columns: tuple[str, ...]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in columns}


def stream_row(
    batch_id: int, run: int, spark_batch: int, part: int, end: int, safe: int | None
) -> dict[str, Any]:
    """A stream row of revision 0005 in generation 3."""
    state = (
        {}
        if safe is None
        else {"t": {"0": {"safe": safe, "sessions": 1, "events": 2, "bytes": 3, "digest": "d" * 24}}}
    )
    return {
        "batch_id": batch_id,
        "kind": "stream",
        "generation": 3,
        "spark_batch": spark_batch,
        "part": part,
        "run_id": RUNS[run],
        "start_offsets": {"t": {"0": 200}},
        "end_offsets": {"t": {"0": end}},
        "open_state": state,
        "transform_fingerprint": "transform",
    }


def test_what_was_written_since_goes_down_too(old: Database) -> None:
    """Spark's numbers began anew with each run; the old job takes the greatest of a generation for the newest."""
    upgrade(old.dsn)
    for row in (
        stream_row(6, 5, 0, 0, 210, 205),
        stream_row(7, 5, 1, 0, 220, None),
        stream_row(8, 5, 1, 1, 220, None),
        stream_row(10, 6, 0, 0, 230, 221),
        stream_row(11, 6, 4, 0, 240, 221),
    ):
        old.insert("batch", **row)
    old.insert("batch", batch_id=9, kind="retry", generation=3, run_id=RUNS[5], transform_fingerprint="")
    old.insert("run", run_id=RUNS[6], generation=3, restored="position", resumes_at={"t": {"0": 220}}, rebuild_offsets=12, max_events=500,
               explanation="", attempt=1, transform_fingerprint="", host="", pid=1, system_identifier=1, timeline=1)  # fmt: skip
    for number, reason in ((4, "truncation"), (5, "fork")):
        old.insert("generation", generation=number, start_offsets={}, topics={}, reason=reason, policy="skip", assembly={},
                   run_id=RUNS[6])  # fmt: skip

    downgrade(old.dsn, "0004")
    found = [row for row in old.rows("batch", "batch_id") if row["generation"] == 3]
    assert [(row["batch_id"], row["spark_batch"], row["part"]) for row in found] == [
        (6, 0, 0), (7, 1, 0), (8, 1, 1), (9, None, 0), (10, 2, 0), (11, 3, 0)
    ]  # fmt: skip
    assert [row["safe_offsets"] and row["safe_offsets"]["t"]["0"] for row in found] == [
        205,
        220,
        220,
        None,
        221,
        221,
    ]
    assert found[0]["done_offsets"] == found[0]["end_offsets"]
    run = old.row("run", run_id=RUNS[6])
    assert (run["restored"], run["spark_batch"], run["read_again"]) == ("new_generation", 0, 12)
    assert run["high_water"] == run["resumes_at"] == {"t": {"0": 220}}
    assert [row["reason"] for row in old.rows("generation", "generation")][2:] == ["requested"] * 3
    # Numbers of what comes next continue.
    old.insert("savepoint", name="next", generation=3, batch_id=11)
    assert old.row("savepoint", name="next")["savepoint_id"] == 5


def test_savepoints_without_a_ledger_row_hold_the_downgrade_up(old: Database) -> None:
    """Before, a savepoint was a ledger row. A deleted one may lose it; nothing else is deleted for a downgrade."""
    upgrade(old.dsn)
    old.connection.execute("DELETE FROM outbox.batch WHERE batch_id < 3")
    with pytest.raises(
        SchemaError, match=r"ledger rows of savepoints were pruned, .*: early, cut\. Delete them"
    ):
        downgrade(old.dsn, "0004")
    assert len(old.rows("savepoint", "savepoint_id")) == 4
    old.connection.execute("UPDATE outbox.savepoint SET deleted_at = now() WHERE batch_id < 3")
    downgrade(old.dsn, "0004")
    assert [row["batch_id"] for row in old.rows("savepoint", "savepoint_id")] == [None, None, None, 4]
