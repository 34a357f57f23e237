"""Letters `malformed` whose schema can be used by now: their events make the sessions that they would have made, each once."""

from collections.abc import Iterator
from typing import Any

import orjson
import psycopg
import pytest

from db.connection import Connection
from publisher.erasure.erase import Erasure
from service.formats.registry import schemas
from service.settings import Settings
from spark_job.dead_letters.outcome import RetryOutcome
from spark_job.dead_letters.retry import Retry
from spark_job.dead_letters.store import Filter
from spark_job.outputs.pgcopy import nullable
from spark_job.sink import ledger_rows
from tests.support.outbox import letters as kept_letters
from tests.support.outbox.letters import HERE, WHOLE, outputs, with_letters
from tests.support.schemas.clicks import AVRO, avro_encoder
from tests.support.schemas.registry import Registry, registry
from tests.support.sink.batches import Row, letter, session, still_open

GENERATION = {"format": "avro", "start": "start", "entry": "entry", "end": "end", "topics": ["in"]}
KINDS = ("start", "entry", "end")
LOCKED = """SELECT count(*) FROM pg_locks l JOIN pg_class c ON c.oid = l.relation
            WHERE l.pid = pg_backend_pid() AND c.relkind = 'r' AND c.relname LIKE 'session\\_output\\_p%'"""


@pytest.fixture(name="server")
def _server() -> Iterator[Registry]:
    with registry(own=True) as found:
        yield found


def malformed(offset: int, kind: str, key: str = "k", schema_id: int = 1) -> Row:
    event = {"event_type": kind, "session_key": key, "price_cents": offset, "tags": []}
    return letter(None, offset, offset, "malformed", [avro_encoder(schema_id)(event)])


def retry(
    dsn: str, connection: Connection, server: Registry, *ids: int, function: str = "counted"
) -> RetryOutcome:
    with psycopg.connect(dsn, autocommit=True) as admin:
        admin.execute("UPDATE outbox.generation SET assembly = %s", [orjson.dumps(GENERATION).decode()])
    settings = Settings(
        postgres={"dsn": dsn},  # type: ignore[arg-type]
        transform={"function": f"{HERE}:{function}"},  # type: ignore[arg-type]
        schema_registry={"url": server.url, "options": {"max.retries": 0}},  # type: ignore[arg-type]
    )
    server.use(settings.schema_registry.client())
    work = Retry(connection, settings)
    total = RetryOutcome()
    for step in work.steps(Filter(ids=ids) if ids else Filter(state="open"), 2):
        total.add(work.run_once(step))
    return total


def refused(outcome: RetryOutcome) -> dict[int, str]:
    return {each.dead_letter_id: each.because for each in outcome.refused}


def states(connection: Connection) -> list[tuple[str, int | None]]:
    return connection.execute(
        "SELECT state, resolved_batch FROM outbox.dead_letter ORDER BY dead_letter_id"
    ).fetchall()


def test_letters_of_a_schema_that_is_mended_are_retried_as_the_sessions_that_they_are(
    connection: Connection, database: str, server: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schemas, "_UNUSABLE_S", 0.0)
    with_letters(
        connection,
        *(malformed(10 + 2 * number, kind, "k") for number, kind in enumerate(KINDS)),
        *(malformed(11 + 2 * number, kind, "j") for number, kind in enumerate(KINDS)),
        malformed(20, "start", "half"),
        malformed(21, "end", "other", schema_id=9),
    )
    outcome = retry(database, connection, server)
    assert (outcome.retried, len(outcome.refused)) == ([], 8)
    assert all("the registry has no schema" in because for because in refused(outcome).values())
    server.register("clicks", "AVRO", AVRO)
    outcome = retry(database, connection, server)
    assert outputs(connection) == [(2, "j", 0, [11], [15], [1]), (2, "k", 0, [10], [14], [1])]
    assert states(connection) == [("resolved", 2)] * 6 + [("open", None)] * 2
    assert "no part of a session that is whole" in refused(outcome)[7]
    assert "the registry has no schema 9" in refused(outcome)[8]
    again = retry(database, connection, server, 1, 2, 3)
    assert refused(again) == dict.fromkeys((1, 2, 3), "batch 2 has resolved it")
    assert len(outputs(connection)) == 2


@pytest.mark.parametrize(
    "read",
    [
        [letter("k", 11, 11, "no_start")],
        [session("k", 8, 11, [])],
        [session("k", 14, 19, [])],
        [still_open(0, 13, events=2)],
    ],
    ids=["an entry between them", "an output before", "an output behind", "a session that is open"],
)
def test_a_session_of_which_other_events_were_read_is_not_made_of_the_rest(
    connection: Connection, database: str, server: Registry, read: list[dict[str, Any]]
) -> None:
    server.register("clicks", "AVRO", AVRO)
    run = with_letters(connection, malformed(10, "start"), malformed(14, "end"))
    run.plan(1, (100, 50), (200, 50))
    opened = [row for row in read if row["kind"] == still_open(0)["kind"]]
    run.write(1, *(row for row in read if row not in opened), *(opened or [still_open(0)]))
    outcome = retry(database, connection, server, 1, 2)
    assert outcome.retried == []
    assert len(outcome.refused) == 2
    assert all("other events of its session were read" in because for because in refused(outcome).values())


def test_an_output_of_while_the_transform_runs_is_seen(
    connection: Connection, database: str, server: Registry
) -> None:
    """Under the writer lock only the batches since the first look are looked at."""
    server.register("clicks", "AVRO", AVRO)
    run = with_letters(connection, malformed(10, "start"), malformed(14, "end"))
    run.plan(1, (100, 50), (200, 50))

    def commit() -> None:
        run.write(1, session("k", 14, 119, []), still_open(0))

    kept_letters.meanwhile[:] = [commit]
    try:
        outcome = retry(database, connection, server, 1, 2, function="interrupted")
    finally:
        kept_letters.meanwhile.clear()
    assert {number: because[:38] for number, because in refused(outcome).items()} == dict.fromkeys(
        (1, 2), "other events of its session were read:"
    )


def test_a_retry_locks_the_partitions_of_a_window_of_all_that_are_kept(
    connection: Connection, database: str, server: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.register("clicks", "AVRO", AVRO)
    with_letters(connection, *(malformed(10 + number, kind) for number, kind in enumerate(KINDS)))
    with psycopg.connect(database, autocommit=True) as admin:
        admin.execute("SELECT outbox.ensure_partitions(1, 600000)")
    held = []

    def insert_rows(*arguments: Any) -> None:
        held.extend(connection.execute(LOCKED).fetchall())
        stored(*arguments)

    stored = ledger_rows.insert_rows
    monkeypatch.setattr(ledger_rows, "insert_rows", insert_rows)
    assert len(retry(database, connection, server).retried) == 1
    ((partitions,),) = held
    assert partitions <= 2


@pytest.mark.guarantee(183)
def test_a_session_of_a_key_that_was_erased_is_not_made_again(
    connection: Connection, database: str, server: Registry
) -> None:
    server.register("clicks", "AVRO", AVRO)
    run = with_letters(connection, malformed(10, "start"), malformed(14, "end"))
    run.plan(1, (100, 50), (200, 50))
    run.write(1, letter("k", 13, 13, "no_start"))
    with psycopg.connect(database, autocommit=True) as owner:
        owner.execute(
            "SELECT outbox.erase_letters(array_agg(dead_letter_id)) FROM outbox.dead_letter WHERE session_key = 'k'"
        )
    outcome = retry(database, connection, server, 1, 2)
    assert outcome.retried == []
    assert all("or erased" in because for because in refused(outcome).values())


@pytest.mark.guarantee(183)
def test_a_session_of_a_key_of_which_nothing_was_there_to_erase_is_not_made_either(
    connection: Connection, database: str, server: Registry
) -> None:
    server.register("clicks", "AVRO", AVRO)
    with_letters(connection, malformed(10, "start"), malformed(14, "end"))
    with psycopg.connect(database, autocommit=True, options="-c role=outbox_eraser") as eraser:
        Erasure(eraser, ["k"]).run(0)
    outcome = retry(database, connection, server, 1, 2)
    assert outcome.retried == []
    assert all("or erased" in because for because in refused(outcome).values())


def test_of_a_header_s_id_nothing_is_kept(connection: Connection, database: str, server: Registry) -> None:
    with_letters(connection, malformed(10, "start"), malformed(14, "end"))
    GENERATION["schema_id"] = "header:id"
    try:
        outcome = retry(database, connection, server)
    finally:
        del GENERATION["schema_id"]
    assert all("header" in because for because in refused(outcome).values())
    assert len(outcome.refused) == 2


def test_types_in_headers_are_the_letters(connection: Connection, database: str, server: Registry) -> None:
    server.register("clicks", "AVRO", AVRO)
    rows = [malformed(10 + n, kind) | {"types": nullable(kind.encode())} for n, kind in enumerate(KINDS)]
    with_letters(connection, *rows)
    GENERATION["type"] = "header:kind"
    try:
        retry(database, connection, server)
    finally:
        del GENERATION["type"]
    assert [row[1] for row in outputs(connection)] == ["k"]
    assert len(WHOLE) == len(rows)
