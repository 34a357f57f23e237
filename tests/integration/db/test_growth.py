"""What a statement locks and reads does not grow with the table partitions that there are (docs/decisions/0029).

Every statement of the services is tried, whatever file it is in. One that names the outputs must do so by constants and be in `BOUNDED`;
any other is planned for all values, as a prepared statement is sooner or later, and may then lock no more either.
"""

import ast
import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, LiteralString
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg.types.json import Jsonb

from db.migrate import upgrade
from devstack.postgres import Postgres
from publisher.status.publisher_status import read_status
from tests.support.outbox.batches import OFFSETS, TOPIC_ID, Outbox, simple
from tests.support.outbox.old_outputs import make_partitions
from tests.support.queries import query
from tests.support.query_files import ROOT, QueryFile, kind, numbered, query_files

MOST_LOCKS = 90
"""Of a window of sixteen partitions with their indexes, and of the other tables."""
MOST_BLOCKS = 3_000
PARKED = 50_000
MOST_BLOCKS_AMONG_PARKED = 100
"""All of them are some 2,500."""
READERS = 30
WINDOW = 100_000
AHEAD = 30_000

SERVICES = ("publisher", "spark_job", "db")
STATEMENTS = {
    f"{file.package}/{file.subject}/{name}": text
    for file in query_files()
    if file.package.split(".")[0] in SERVICES
    for name, text in file.load().items()
}

RANGE: dict[str, Any] = {"from_batch": "first", "to_batch": "last"}
KEY: dict[str, Any] = RANGE | {"key": "k0001", "session_key": "k0001"}
PLACE: dict[str, Any] = {"epoch": 1, "lane": 0, "from_key": "", "to_key": ""}

BOUNDED: dict[str, dict[str, Any]] = {
    "publisher/lanes/backlog": RANGE
    | {
        "lanes": [0],
        "after_batches": ["first"],
        "after_keys": [""],
        "last_batches": ["last"],
        "limits": [10],
    },
    "publisher/rows/of_lane": RANGE | PLACE | {"rows": 10, "bytes": 1_000, "whole": 1_000, "expansion": 4},
    "publisher/rows/stray": {"lanes": 2, "after_batch": "first", "to_batch": "last"},
    "publisher/rows/outputs_of_key": KEY | {"topic": None, "batch_ids": None, "rows": 10},
    "publisher/parked/events": {"batch_id": "last", "session_key": "k0001"},
    "publisher/parked/next": RANGE
    | {"reasons": None, "batch_ids": None, "session_keys": None, "after_key": "", "rows": 10},
    "publisher/parked/missing": RANGE | {"reasons": None, "batch_ids": None, "session_keys": None},
    "publisher/parked_topics/waiting": RANGE | {"topic": "out"},
    "publisher/resumes/count_rows": RANGE | PLACE | {"first_batch": "first", "last_batch": "last"},
    "publisher/replays/count": RANGE | {"keys": None, "topics": None},
    "publisher/replays/next": RANGE | PLACE | {"rows": 10},
    "publisher/replays/next_of_keys": RANGE | PLACE | {"replay_id": 1, "rows": 10},
    "publisher/replays/rows": RANGE
    | {"batch_ids": ["last"], "session_keys": ["k0001"], "bytes": 1_000, "expansion": 4},
    "publisher/replays/rows_between": RANGE | {"keys": None},
    "publisher/replays/unknown_keys": RANGE | {"keys": ["k0001"]},
    "publisher.archive/archive/row_keys": RANGE | {"from_key": "", "rows": 10},
    "publisher.archive/archive/rows": RANGE
    | {"batch_ids": ["last"], "session_keys": ["k0001"], "bytes": 1_000, "expansion": 4},
    "publisher.audit/deliveries/counts": RANGE,
    "publisher.audit/ledger/batch_counts": RANGE,
    "publisher.audit/rows/of_lane": RANGE | {"lane": 0},
    "publisher.audit/rows/keys": {"lane": 0, "batch_id": "last"},
    "publisher.audit/rows/count": RANGE,
    "publisher.audit/rows/stray": RANGE,
    "publisher.audit/rows/parked": RANGE,
    "publisher.console/flow/latency": RANGE | {"span_s": 300, "deliveries": 40, "rows": 50},
    "publisher.console/ledger/batch_latency": {"batch_id": "last", "rows": 10},
    "publisher.console/ledger/batch_sessions": {"batch_id": "last", "lane": 0, "after": "", "rows": 10},
    "publisher.console/ledger/findings": RANGE | {"rows": 10},
    "publisher.trace/keys/has_row": KEY,
    "publisher.console/story/sessions": KEY | {"rows": 10},
    "publisher.console/story/history": KEY | {"rows": 10},
    "publisher.console/story/values": KEY | {"batch_ids": ["last"], "rows": 10, "bytes": 10},
    "publisher.console/story/replays": KEY | {"rows": 10},
    "publisher.trace/positions/sessions": {
        "batch_id": "first",
        "batches": 64,
        "most_sessions": 10,
        "rows": 5,
    }
    | {"topic_id": TOPIC_ID, "partition": 0, "offset": 1},
    "spark_job/letters/drop_settled": {"start": Jsonb({}), "since": "last"},
    "spark_job/letters/was_read": RANGE
    | {
        "keys": ["k0001"],
        "topic_ids": [TOPIC_ID],
        "partitions": [0],
        "firsts": [1],
        "lasts": [9],
    },
    "spark_job/letters/resolve_covered": {"first_batch": "last", "last_batch": "last", "keys": ["k0001"]},
    "spark_job/letters/resolve_retried": {"first_batch": "last", "last_batch": "last", "ids": [1]}
    | {"keys": ["k0001"], "starts": [1]},
    "spark_job/trial/rows": RANGE | {"keys": ["k0001"], "ends": [9]},
}
"""Statements that get their batches as constants, with values: "first" and "last" stand for the ends of a window."""

CALLS: dict[str, dict[str, Any]] = {
    "publisher.archive/archive/hold": {"partition": "session_output_p00000000"},
    "publisher.archive/archive/drop": {"partition": "session_output_p00000000", "archive_id": UUID(int=0)}
    | {"manifest_sha256": bytes(32), "rows": 1, "sessions": 1, "outputs": 1, "output_bytes": 1},
    "publisher.erasure/erasure/rows": RANGE | {"session_key": "k0001"},
    "publisher.erasure/erasure/erase_rows": {"session_key": "k0001", "batch_ids": ["last"]},
    "publisher.erasure/erasure/erase_traces": {
        "session_key": "k0001",
        "batch": 0,
        "generation": 0,
        "savepoint": 0,
    },
    "publisher.erasure/erasure/erase_statistics": {"partition": "session_output_p00000000"},
    "publisher/parked/requeue": {"session_keys": ["k0001"], "batch_ids": ["last"], "lanes": [0]}
    | {"lane_count": 2, "run_id": UUID(int=0)},
    "publisher.retention/partitions/ensure": {"ahead_batches": AHEAD},
    "publisher.retention/partitions/drop": {"partition": "session_output_p00000000"},
    "spark_job/ledger/ensure_partitions": {"first_batch": "last", "last_batch": "ahead"},
}
"""Statements whose functions read or change the outputs, with values; what is planned within a function is seen only when it runs."""

BEFORE = {"publisher.archive/archive/drop": "publisher.archive/archive/hold"}
"""Of some of them, another one that comes first in their transaction."""

AMONG_PARKED: dict[str, dict[str, Any]] = {
    "publisher/parked/ahead": {"epoch": 1, "lane": 0, "from_batch": 1, "from_key": "", "rows": 100},
    "publisher/parked/within": PLACE | {"from_batch": 1, "to_batch": "last"},
    "publisher/parked/up_to": {"epoch": 1, "lane": 0, "to_batch": "last", "to_key": ""},
    "publisher/parked/list": {"all_states": False, "rows": 100},
    "publisher/parked/row": {"batch_id": "last", "session_key": "k0001"},
    "publisher/parked/counts": {"count_limit": 1_000},
    "publisher/parked/bounded_counts": {"count_limit": 1_000},
    "publisher/parked/next": BOUNDED["publisher/parked/next"],
    "publisher/parked/missing": BOUNDED["publisher/parked/missing"],
    "publisher.audit/rows/parked": BOUNDED["publisher.audit/rows/parked"],
}
"""What lane 0 and a look ask of parked rows, with values; there are many of lane 1 in old batches."""

EXEMPT = {
    "publisher.audit/rows/emitted_twice": "two may be any number of batches apart: an audit reads all that is kept, once",
}

ASKS_WHICH_THERE_ARE = {"publisher.console/ledger/findings"}
"""Compares the ledger with the partitions that there are, which the catalogues hold: an entry or two for each."""

NOT_PLANNED = ("LISTEN", "SET", "CREATE", "COPY")


# Five thousand partitions alone take minutes to make on a busy machine.
MANY = pytest.param(5_000, marks=[pytest.mark.faults, pytest.mark.timeout(3_600)])


@pytest.fixture(scope="module", params=[MANY, 300], ids="{} partitions".format)
def old(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outbox]:
    """An outbox on a server of its own, with so many partitions; the newest batches have rows that wait, and deliveries."""
    server = Postgres(tmp_path_factory.mktemp("growth") / "postgres", fast=True)
    server.start()
    try:
        dsn = server.create_database("growth")
        upgrade(dsn)
        outbox = Outbox(dsn, "out")
        newest = request.param * 10_000 - 20_000
        with psycopg.connect(dsn, autocommit=True) as connection:
            make_partitions(connection, newest + 19_999)
            connection.execute(
                "INSERT INTO outbox.batch (batch_id, kind, generation, spark_batch, run_id, start_offsets, end_offsets, open_state,"
                " transform_fingerprint) VALUES (%s, 'stream', 1, 0, %s, %s, %s, '{}', 'test')",
                (newest, uuid4(), OFFSETS, OFFSETS),
            )
            connection.execute(
                "INSERT INTO outbox.lane (epoch, lane, seq, cursor_batch, cursor_commit_id)"
                " SELECT 1, n, 1, %s, gen_random_uuid() FROM generate_series(0, 1) n",
                (newest,),
            )
            connection.execute(
                "INSERT INTO outbox.delivery (epoch, lane, seq, after_batch, to_batch, sessions, events)"
                " SELECT 1, n, 1, %s, %s, 1, 1 FROM generate_series(0, 1) n",
                (newest - 1, newest),
            )
        for number in range(1, 6):
            outbox.batch(simple(number, 10))
        query(dsn, "ANALYZE")
        yield outbox
    finally:
        server.destroy()


@pytest.fixture(scope="module")
def window(old: Outbox) -> tuple[int, int]:
    """The newest batches."""
    ((last,),) = query(old.dsn, "SELECT max(batch_id) FROM outbox.batch")
    return max(1, last - WINDOW), last


def values_of(given: dict[str, Any], window: tuple[int, int]) -> dict[str, Any]:
    ends = {"first": window[0], "last": window[1], "ahead": window[1] + AHEAD}

    def filled(value: Any) -> Any:
        if isinstance(value, list):
            return [filled(each) for each in value]
        return ends.get(value, value) if isinstance(value, str) else value

    return {parameter: filled(value) for parameter, value in given.items()}


def locks(connection: psycopg.Connection[Any]) -> int:
    """How many relations this transaction has locked."""
    row = connection.execute(
        "SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'relation'",
        prepare=False,
    ).fetchone()
    assert row is not None
    return int(row[0])


def stage(connection: psycopg.Connection[Any], text: LiteralString) -> None:
    if "pg_temp." in text:
        connection.execute(QueryFile("spark_job", "letters").load()["create_stage"])


def planned_for_all_values(connection: psycopg.Connection[Any], text: LiteralString) -> None:
    """As a prepared statement is planned sooner or later."""
    statement, parameters = numbered(text)
    connection.execute("DEALLOCATE ALL")
    connection.execute(f"PREPARE asked AS {statement}".encode())
    nulls = f"({', '.join(['NULL'] * parameters)})" if parameters else ""
    connection.execute("SET LOCAL plan_cache_mode = force_generic_plan")
    connection.execute(f"EXPLAIN EXECUTE asked{nulls}".encode())


def blocks(plan: dict[str, Any]) -> int:
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


def test_every_statement_that_is_named_here_is_there() -> None:
    assert {*BOUNDED, *CALLS, *AMONG_PARKED, *EXEMPT} <= STATEMENTS.keys()


@pytest.mark.parametrize("name", [name for name in STATEMENTS if name not in {*BOUNDED, *EXEMPT}])
def test_a_statement_without_bounds_locks_few_relations_whatever_its_plan(old: Outbox, name: str) -> None:
    """One that fails here names the outputs: it needs constants, and a place in `BOUNDED`."""
    text = STATEMENTS[name]
    if kind(text) in NOT_PLANNED:
        return
    with psycopg.connect(old.dsn) as connection:
        stage(connection, text)
        planned_for_all_values(connection, text)
        assert locks(connection) <= MOST_LOCKS
        connection.rollback()


@pytest.mark.parametrize("name", BOUNDED)
def test_a_bounded_statement_locks_and_reads_what_its_window_has(
    old: Outbox, window: tuple[int, int], name: str
) -> None:
    text, values = STATEMENTS[name], values_of(BOUNDED[name], window)
    with psycopg.connect(old.dsn) as connection:
        stage(connection, text)
        explained = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {text}".encode()
        # The first time a session reads which partitions there are, three blocks of the catalogues for each; within a function that counts.
        connection.execute(explained, values, prepare=False)
        row = connection.execute(explained, values, prepare=False).fetchone()
        assert row is not None
        assert locks(connection) <= MOST_LOCKS
        ((partitions,),) = query(old.dsn, "SELECT count(*) FROM outbox.output_partition")
        most = MOST_BLOCKS + (2 * partitions if name in ASKS_WHICH_THERE_ARE else 0)
        assert blocks(row[0][0]["Plan"]) <= most
        connection.rollback()


def calls(text: str, function: str) -> bool:
    """Whether the text calls the function. In quotes it is only named."""
    return re.search(rf"(?<!')\boutbox\.{function}\(", text) is not None


def functions_on_outputs(dsn: str) -> set[str]:
    """Those of the schema that read or change the outputs, by themselves or by another one."""
    statement = "SELECT proname::text, pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = 'outbox'::regnamespace"
    bodies = dict(query(dsn, statement))
    found = {name for name, body in bodies.items() if "session_output" in body}
    while more := {n for n, body in bodies.items() if any(calls(body, each) for each in found)} - found:
        found |= more
    return found


def test_every_statement_that_calls_a_function_on_the_outputs_is_run(old: Outbox) -> None:
    functions = functions_on_outputs(old.dsn)
    calling = {name for name, text in STATEMENTS.items() if any(calls(text, each) for each in functions)}
    assert CALLS.keys() <= calling
    assert calling <= {*BOUNDED, *CALLS, *EXEMPT}


@pytest.mark.parametrize("name", CALLS)
def test_a_function_locks_few_partitions_whatever_the_plans_within(
    old: Outbox, window: tuple[int, int], name: str
) -> None:
    with psycopg.connect(old.dsn) as connection:
        # Delivered rows can be erased, parked ones sent again, and the oldest partition can go.
        connection.execute("UPDATE outbox.lane SET cursor_batch = %s", [window[1]])
        connection.execute(
            "INSERT INTO outbox.parked (session_key, batch_id, epoch, lane, lease_token, reason, detail)"
            " VALUES ('k0001', %s, 1, 0, 1, 'invalid', 'test')",
            [window[1]],
        )
        connection.execute("SET LOCAL plan_cache_mode = force_generic_plan")
        for each in [BEFORE[name], name] if name in BEFORE else [name]:
            found = connection.execute(
                STATEMENTS[each], values_of(CALLS[each], window), prepare=False
            ).fetchall()
        assert found not in ([], [(0,)])
        assert locks(connection) <= MOST_LOCKS
        connection.rollback()


@pytest.fixture(scope="module")
def many_parked(old: Outbox) -> None:
    """Rows of old batches, parked and discarded long ago."""
    query(
        old.dsn,
        "INSERT INTO outbox.parked (session_key, batch_id, epoch, lane, lease_token, reason, detail, state)"
        " SELECT 'k' || n, n + 1000000, 1, 1, 1, 'invalid', repeat('x', 300), 'discarded' FROM generate_series(1, %s) n",
        PARKED,
    )
    query(old.dsn, "VACUUM (ANALYZE) outbox.parked")


@pytest.mark.usefixtures("many_parked")
@pytest.mark.parametrize("name", AMONG_PARKED)
def test_many_parked_rows_of_old_batches_cost_a_look_nothing(
    old: Outbox, window: tuple[int, int], name: str
) -> None:
    values = values_of(AMONG_PARKED[name], window)
    with psycopg.connect(old.dsn, autocommit=True) as connection:
        explained = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {STATEMENTS[name]}".encode()
        connection.execute(explained, values, prepare=False)
        row = connection.execute(explained, values, prepare=False).fetchone()
    assert row is not None
    assert blocks(row[0][0]["Plan"]) <= MOST_BLOCKS_AMONG_PARKED


def test_many_readers_at_once_leave_the_lock_table_to_the_others(
    old: Outbox, window: tuple[int, int]
) -> None:
    """Six that asked for `publisher status` took it all: "out of shared memory" for everybody, commits included."""
    names = [name for name in BOUNDED if "pg_temp." not in STATEMENTS[name]]
    ready = threading.Barrier(READERS + 1, timeout=300)

    def read(_: int) -> None:
        with psycopg.connect(old.dsn) as connection:
            for name in names:
                with connection.transaction(force_rollback=True):
                    connection.execute(STATEMENTS[name], values_of(BOUNDED[name], window), prepare=False)
            # What a whole look holds until it ends.
            read_status(connection)
            ready.wait()
            ready.wait()

    with ThreadPoolExecutor(READERS) as pool, psycopg.connect(old.dsn, autocommit=True) as onlooker:
        readers = [pool.submit(read, number) for number in range(READERS)]
        ready.wait()
        held = onlooker.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'relation'").fetchone()
        ready.wait()
        for reader in readers:
            reader.result()
    assert held is not None
    assert held[0] <= READERS * MOST_LOCKS


def test_a_look_counts_what_waits_right(old: Outbox) -> None:
    with psycopg.connect(old.dsn, autocommit=True) as connection:
        lanes = read_status(connection).lanes
    assert [lane.lag_rows for lane in lanes] == [25, 25]
    assert all(lane.oldest_undelivered_s is not None for lane in lanes)


def _loaded(tree: ast.Module) -> dict[str, str]:
    """Return what the module calls its files of queries: {variable: "<package>/<subject>"}."""
    found = {}
    for node in tree.body:
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call):
            continue
        call, target = node.value, node.targets[0]
        if isinstance(call.func, ast.Name) and call.func.id == "queries" and isinstance(target, ast.Name):
            package, subject = (ast.literal_eval(argument) for argument in call.args)
            found[target.id] = f"{package}/{subject}"
    return found


def _prepared(path: Path) -> list[str]:
    """Return the bounded statements that a module runs in a way in which they may be prepared."""
    tree = ast.parse(path.read_text("utf-8"))
    files, found = _loaded(tree), []
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        asked = isinstance(call.func, ast.Attribute) and call.func.attr == "execute"
        unprepared = any(
            word.arg == "prepare" and isinstance(word.value, ast.Constant) and word.value.value is False
            for word in call.keywords
        )
        for part in call.args[:1] if asked and not unprepared else ():
            for each in ast.walk(part):
                if (
                    isinstance(each, ast.Subscript)
                    and isinstance(each.value, ast.Name)
                    and isinstance(each.slice, ast.Constant)
                ):
                    name = f"{files.get(each.value.id)}/{each.slice.value!s}"
                    found += [name] if name in BOUNDED else []
    return found


SERVER_SIDE = {"publisher.audit/rows/of_lane", "publisher/replays/rows_between"}
"""Run by a server-side cursor, which plans anew each time."""


def test_no_bounded_statement_is_ever_prepared() -> None:
    found = {
        name
        for folder in SERVICES
        for path in (ROOT / folder).rglob("*.py")
        for name in _prepared(path)
        if name not in SERVER_SIDE
    }
    assert found == set()
