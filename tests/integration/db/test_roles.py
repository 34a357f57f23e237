"""Each role can do its own part and no more."""

from contextlib import suppress

import psycopg
import pytest
from psycopg import errors, sql

from db.migrate import ROLES
from tests.support.outbox.valid_rows import VALID, OutboxRows
from tests.support.rights.declared import (
    AUDITOR,
    CALLABLE,
    CHECKS,
    INSERTABLE,
    OF_THE_OWNER,
    PUBLISHER,
    READABLE,
    READS,
    RETENTION,
    SHARED_VIEWS,
    TABLES,
    UPDATABLE,
    VIEWS,
    WRITER,
)


def allowed(outbox: OutboxRows, role: str, statement: sql.SQL | sql.Composed) -> bool:
    """Whether `role` may run the statement. A failure for any other reason is raised."""
    try:
        with outbox.connection.transaction(force_rollback=True):
            outbox.connection.execute(sql.SQL("SET LOCAL ROLE {}").format(sql.Identifier(role)))
            outbox.connection.execute(statement)
    except errors.InsufficientPrivilege:
        return False
    return True


def table(name: str) -> sql.Identifier:
    return sql.Identifier("outbox", name)


@pytest.mark.guarantee(105)
@pytest.mark.parametrize("role", ROLES)
def test_a_role_reads_its_relations_and_no_others(outbox: OutboxRows, role: str) -> None:
    readable = {
        name for name in TABLES if allowed(outbox, role, sql.SQL("SELECT * FROM {}").format(table(name)))
    }
    assert readable == READABLE[role]


@pytest.mark.parametrize("role", ROLES)
def test_a_role_reads_the_views_that_it_needs_and_the_auditor_all(outbox: OutboxRows, role: str) -> None:
    views = {
        name
        for (name,) in outbox.rows(
            "SELECT relname::text FROM pg_class WHERE relnamespace = 'outbox'::regnamespace AND relkind = 'v'"
        )
    }
    readable = {
        name for name in views if allowed(outbox, role, sql.SQL("SELECT * FROM {}").format(table(name)))
    }
    assert readable == VIEWS.get(role, views)
    assert len(views) > len(SHARED_VIEWS | CHECKS)


def test_the_auditor_changes_nothing_and_locks_nothing(outbox: OutboxRows) -> None:
    relations = [
        name
        for (name,) in outbox.rows(
            """SELECT relname::text FROM pg_class
               WHERE relnamespace = 'outbox'::regnamespace AND relkind IN ('r', 'p', 'v') AND NOT relispartition"""
        )
    ]
    for name in relations:
        for statement in (
            "INSERT INTO {} DEFAULT VALUES",
            "DELETE FROM {}",
            "TRUNCATE {}",
            "LOCK TABLE {} IN ROW EXCLUSIVE MODE",
            "LOCK TABLE {} IN SHARE MODE",
            "SELECT FROM {} FOR SHARE",
        ):
            # A view that cannot be written or locked at all, whoever asks.
            with suppress(
                errors.FeatureNotSupported, errors.ObjectNotInPrerequisiteState, errors.WrongObjectType
            ):
                assert not allowed(outbox, AUDITOR, sql.SQL(statement).format(table(name))), (statement, name)


@pytest.mark.parametrize("role", ROLES)
def test_a_role_calls_its_functions_and_no_others(outbox: OutboxRows, role: str) -> None:
    found = {
        name
        for (name,) in outbox.rows(
            """SELECT proname::text FROM pg_proc
               WHERE pronamespace = 'outbox'::regnamespace AND has_function_privilege(%s, oid, 'EXECUTE')""",
            role,
        )
    }
    assert found == CALLABLE[role]
    assert not found & OF_THE_OWNER


def test_every_function_with_the_owners_rights_has_its_own_search_path(outbox: OutboxRows) -> None:
    """Or a caller's temporary table could stand in for one of ours."""
    assert (
        outbox.rows(
            """SELECT proname::text FROM pg_proc
               WHERE pronamespace = 'outbox'::regnamespace AND prosecdef
                 AND NOT coalesce(proconfig, '{}') && ARRAY['search_path=pg_catalog, pg_temp', 'search_path=""']"""
        )
        == []
    )


@pytest.mark.parametrize("isolation", ["REPEATABLE READ", "SERIALIZABLE"])
def test_no_function_with_the_owners_rights_changes_anything_by_an_old_snapshot(
    outbox: OutboxRows, isolation: str
) -> None:
    """What the caller saw when its transaction began may be what somebody needs by now."""
    functions = outbox.rows(
        """SELECT p.proname::text, (SELECT array_agg(format_type(t, NULL)) FROM unnest(p.proargtypes) t)
           FROM pg_proc p WHERE p.pronamespace = 'outbox'::regnamespace AND p.prosecdef AND p.provolatile = 'v'"""
    )
    assert len(functions) > 20
    did = []
    for name, types in functions:
        nulls = sql.SQL(", ").join(sql.SQL(f"NULL::{each}") for each in types or ())
        try:
            with outbox.connection.transaction(force_rollback=True):
                outbox.connection.execute(sql.SQL(f"SET TRANSACTION ISOLATION LEVEL {isolation}"))
                outbox.connection.execute(sql.SQL("SELECT {}({})").format(table(name), nulls))
            did.append(name)
        except errors.InvalidTransactionState:
            pass
    assert set(did) <= READS


@pytest.mark.guarantee(105)
@pytest.mark.parametrize("role", ROLES)
def test_a_role_inserts_into_its_relations_and_no_others(outbox: OutboxRows, role: str) -> None:
    """With real rows, through the parent of the partitions, with everything that checks and keys call."""
    inserted = set()
    for name in VALID:
        with outbox.connection.transaction(force_rollback=True):
            outbox.insert_parents(name)
            outbox.connection.execute(sql.SQL("SET LOCAL ROLE {}").format(sql.Identifier(role)))
            try:
                with outbox.connection.transaction():
                    outbox.insert(name)
                inserted.add(name)
            except errors.InsufficientPrivilege:
                pass
    assert inserted == INSERTABLE[role]


@pytest.mark.guarantee(105)
@pytest.mark.parametrize("role", ROLES)
def test_a_role_updates_its_columns_and_no_others(outbox: OutboxRows, role: str) -> None:
    updatable: dict[str, set[str]] = {}
    for name in TABLES:
        columns = outbox.rows(
            """SELECT attname FROM pg_attribute
               WHERE attrelid = %s::regclass AND attnum > 0 AND attidentity = '' AND NOT attisdropped""",
            f"outbox.{name}",
        )
        for (column,) in columns:
            statement = sql.SQL("UPDATE {} SET {} = NULL WHERE false").format(
                table(name), sql.Identifier(column)
            )
            if allowed(outbox, role, statement):
                updatable.setdefault(name, set()).add(column)
    assert updatable == UPDATABLE[role]


@pytest.mark.guarantee(105)
@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM outbox.{} WHERE false",
        "TRUNCATE outbox.{} CASCADE",
        "DROP TABLE outbox.{} CASCADE",
        "ALTER TABLE outbox.{} ADD COLUMN extra integer",
        "CREATE INDEX ON outbox.{} ((1))",
        "CREATE TRIGGER t BEFORE INSERT ON outbox.{} EXECUTE FUNCTION suppress_redundant_updates_trigger()",
    ],
)
def test_no_role_changes_a_relation_or_deletes(outbox: OutboxRows, role: str, statement: str) -> None:
    relations = (*TABLES, "session_output_p00000000", "alembic_version")
    assert [n for n in relations if allowed(outbox, role, sql.SQL(statement.format(n)))] == []


@pytest.mark.guarantee(105)
@pytest.mark.parametrize(
    ("table_name", "column", "value"),
    [
        ("delivery", "committed_at", "2020-01-01"),
        ("parked", "created_at", "2020-01-01"),
        ("parked", "state", "discarded"),
        ("parked", "requeued_batch", 2),
        ("lane", "pruned_seq", 7),
        ("lane", "pruned_parked", 7),
    ],
)
def test_the_publisher_records_what_it_did_and_not_when_or_what_became_of_it(
    outbox: OutboxRows, table_name: str, column: str, value: object
) -> None:
    outbox.insert_parents(table_name)
    outbox.connection.execute("SET ROLE outbox_publisher")
    outbox.insert(table_name)
    with pytest.raises(errors.InsufficientPrivilege):
        outbox.insert(table_name, **{column: value})
    with pytest.raises(errors.InsufficientPrivilege):
        outbox.connection.execute(
            sql.SQL("UPDATE {} SET {} = {}").format(table(table_name), sql.Identifier(column), value)
        )
    with pytest.raises(errors.InsufficientPrivilege):
        outbox.connection.execute(sql.SQL("DELETE FROM {}").format(table(table_name)))


@pytest.mark.guarantee(105)
@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE outbox.extra ()",
        "CREATE SCHEMA extra",
        "SELECT * FROM outbox.session_output_p00000000",
        "INSERT INTO outbox.session_output_p00000000 DEFAULT VALUES",
        "UPDATE outbox.alembic_version SET version_num = '9'",
        "GRANT SELECT ON outbox.batch TO PUBLIC",
    ],
)
def test_no_role_goes_round_the_contract(outbox: OutboxRows, role: str, statement: str) -> None:
    if statement.startswith("GRANT"):
        # Postgres answers with a warning where nothing was granted.
        allowed(outbox, role, sql.SQL(statement))
        assert outbox.value("SELECT has_table_privilege('public', 'outbox.batch', 'SELECT')") is False
    else:
        assert not allowed(outbox, role, sql.SQL(statement))


@pytest.mark.parametrize("role", [WRITER, PUBLISHER, AUDITOR])
def test_every_role_reads_the_view_the_revision_and_the_server(outbox: OutboxRows, role: str) -> None:
    outbox.insert_parents("session_output")
    outbox.insert("session_output")
    for statement in (
        "SELECT value_json, delivery_state FROM outbox.event",
        "SELECT version_num FROM outbox.alembic_version",
        "SELECT * FROM outbox.server_identity()",
    ):
        assert allowed(outbox, role, sql.SQL(statement)), statement


@pytest.mark.parametrize("role", ROLES)
def test_only_the_writer_and_retention_make_partitions(outbox: OutboxRows, role: str) -> None:
    statement = sql.SQL("SELECT outbox.ensure_partitions(50000, 50001)")
    assert allowed(outbox, role, statement) == (role in (WRITER, RETENTION))


def test_the_writer_writes_into_a_partition_it_had_made(outbox: OutboxRows) -> None:
    outbox.insert_parents("session_output")
    outbox.connection.execute("SET ROLE outbox_writer")
    assert outbox.value("SELECT outbox.ensure_partitions(70000, 70000)") == 1
    outbox.insert("session_output", batch_id=70_000)
    columns = [*VALID["session_output"]]
    with (
        outbox.connection.cursor() as cursor,
        cursor.copy(
            sql.SQL("COPY outbox.session_output ({}) FROM STDIN").format(
                sql.SQL(", ").join(map(sql.Identifier, columns))
            )
        ) as copy,
    ):
        copy.write_row(list((VALID["session_output"] | {"batch_id": 70_001}).values()))
    assert outbox.value("SELECT count(*) FROM outbox.session_output WHERE batch_id >= 70000") == 2


def test_the_writer_takes_its_lock_and_upserts(outbox: OutboxRows) -> None:
    outbox.insert_parents("dead_letter")
    outbox.insert("dead_letter")
    outbox.connection.execute("SET ROLE outbox_writer")
    outbox.connection.execute("SELECT FROM outbox.writer FOR UPDATE")
    outbox.connection.execute(
        """INSERT INTO outbox.dead_letter (topic_id, topic, partition, first_offset, last_offset, closing_offset, reason,
               generation, batch_id, detail, event_count, event_offsets, event_times_ms, event_values)
           SELECT topic_id, topic, partition, first_offset, last_offset, closing_offset, reason,
               generation, batch_id, detail, event_count, event_offsets, event_times_ms, event_values
           FROM outbox.dead_letter ON CONFLICT DO NOTHING"""
    )
    assert outbox.value("SELECT count(*) FROM outbox.dead_letter") == 1


def test_the_publisher_takes_a_lease(outbox: OutboxRows) -> None:
    outbox.insert("lane_epoch")
    outbox.connection.execute("SET ROLE outbox_publisher")
    outbox.connection.execute("INSERT INTO outbox.lane (epoch, lane) VALUES (1, 0) ON CONFLICT DO NOTHING")
    outbox.connection.execute("SELECT FROM outbox.lane WHERE epoch = 1 AND lane = 0 FOR UPDATE")
    token = outbox.value("UPDATE outbox.lane SET lease_token = lease_token + 1 RETURNING lease_token")
    assert token == 1


def test_the_identity_is_that_of_the_server(outbox: OutboxRows) -> None:
    assert outbox.rows("SELECT system_identifier, timeline FROM outbox.identity") == outbox.rows(
        "SELECT * FROM outbox.server_identity()"
    )
    assert outbox.rows("SELECT * FROM outbox.server_identity()") == outbox.rows(
        "SELECT system_identifier, timeline_id FROM pg_control_system(), pg_control_checkpoint()"
    )


@pytest.mark.guarantee(105)
def test_roles_cannot_log_in(outbox: OutboxRows) -> None:
    flags = outbox.rows(
        """SELECT rolname::text FROM pg_roles
           WHERE rolname = ANY (%s) AND (rolcanlogin OR rolsuper OR rolcreatedb OR rolcreaterole OR rolbypassrls)""",
        list(ROLES),
    )
    assert flags == []
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(outbox.dsn, user=WRITER)
