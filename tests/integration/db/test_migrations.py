"""The schema comes up, goes down and comes up again; whoever runs it learns what is wrong."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, LiteralString
from uuid import uuid4

import psycopg
import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory
from psycopg import errors, sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.types.json import Jsonb

from db import migrate
from db.dump import dump, normalise
from db.migrate import HEAD, ROLES, current, downgrade, explain, require_current, upgrade
from devstack.databases import PostgresServer
from devstack.postgres import Postgres, client_program
from service.errors import SchemaError, UnavailableError
from tests.support.outbox.audited import fill_audited_outbox
from tests.support.outbox.odd_login import odd_login
from tests.support.outbox.valid_rows import OutboxRows
from tests.support.paths import ROOT
from tests.support.queries import query

_QUALIFIER = re.compile(r'\b[a-z_]+\.(?=[a-z_"])')


def leftovers(dsn: str) -> list[str]:
    """Names of the schema, and of the roles on the server."""
    with psycopg.connect(dsn) as connection:
        found = connection.execute(
            """SELECT nspname::text FROM pg_namespace WHERE nspname = 'outbox'
               UNION ALL SELECT rolname::text FROM pg_roles WHERE rolname = ANY (%s) ORDER BY 1""",
            [list(ROLES)],
        )
        return [name for (name,) in found]


def assert_committed(dsn: str, dumped: str) -> None:
    """Compare a dump from the server at `dsn` with db/schema.sql.

    Before Postgres 16 the text of a view qualifies the columns of a single relation, too; there it is compared without qualifiers.
    """
    committed = (ROOT / "db" / "schema.sql").read_text("utf-8")
    if query(dsn, "SELECT current_setting('server_version_num')::integer < 160000") == [(True,)]:
        committed, dumped = (_QUALIFIER.sub("", text) for text in (committed, dumped))
    assert dumped == committed, "run: python -m db.dump > db/schema.sql"


def outbox_migrate(dsn: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command as a person does."""
    return subprocess.run(
        [sys.executable, "-m", "db.cli", *arguments],
        env=os.environ | {"OUTBOX_POSTGRES__DSN": dsn},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.guarantee(124)
def test_up_down_and_up_again_leaves_nothing_in_between(own_postgres: Postgres) -> None:
    dsn = own_postgres.create_database("up_and_down")
    for _ in range(2):
        assert current(dsn) is None
        upgrade(dsn)
        assert current(dsn) == HEAD
        upgrade(dsn)  # nothing to do
        downgrade(dsn, "base")
        assert leftovers(dsn) == []


def test_down_and_up_again_remembers_which_deliveries_were_pruned(own_postgres: Postgres) -> None:
    dsn = own_postgres.create_database("pruned")
    upgrade(dsn)
    with psycopg.connect(dsn, autocommit=True) as connection:
        outbox = OutboxRows(dsn, connection)
        fill_audited_outbox(outbox)
        connection.execute("DELETE FROM outbox.delivery WHERE lane = 0 AND seq = 1")
        connection.execute("UPDATE outbox.lane SET pruned_seq = 1 WHERE lane = 0")
        broken = "SELECT epoch, lane, seq, detail FROM outbox.check_delivery_chain"
        assert connection.execute(broken).fetchall() == []
    downgrade(dsn, "0005")
    upgrade(dsn)
    with psycopg.connect(dsn) as connection:
        assert connection.execute(broken).fetchall() == []
        kept = connection.execute("SELECT lane, pruned_seq FROM outbox.lane ORDER BY lane").fetchall()
        assert kept == [(0, 1), (1, 0)]
    assert_committed(dsn, dump(dsn))
    downgrade(dsn, "base")


def test_down_keeps_roles_that_another_database_uses(own_postgres: Postgres) -> None:
    first, second = own_postgres.create_database("first"), own_postgres.create_database("second")
    upgrade(first)
    upgrade(second)
    downgrade(first, "base")
    assert leftovers(first) == sorted(ROLES)
    with psycopg.connect(second) as connection:
        connection.execute("SET ROLE outbox_writer")
        assert connection.execute("SELECT count(*) FROM outbox.batch").fetchone() == (0,)
    downgrade(second, "base")
    assert leftovers(second) == []


def test_the_committed_schema_is_what_the_migrations_make(database: str) -> None:
    assert_committed(database, dump(database))


def test_a_login_whose_parameters_are_all_odd_makes_the_same_schema(postgres: PostgresServer) -> None:
    name = f"test_{uuid4().hex}"
    dsn = postgres.create_database(name)
    with odd_login(dsn) as odd:
        user = conninfo_to_dict(odd)["user"]
        query(dsn, f"ALTER ROLE {user} SUPERUSER")
        try:
            upgrade(odd)
            assert_committed(dsn, dump(dsn))
            downgrade(odd, "base")
        finally:
            query(dsn, f"DROP OWNED BY {user}")
    postgres.drop_database(name)


def test_the_dump_command_prints_the_committed_schema(postgres: PostgresServer) -> None:
    printed = subprocess.run(
        [sys.executable, "-m", "db.dump"],
        cwd=ROOT,
        env=os.environ | {"OUTBOX_POSTGRES__DSN": postgres.dsn()},
        capture_output=True,
        text=True,
        check=True,
    )
    assert_committed(postgres.dsn(), printed.stdout)
    with psycopg.connect(postgres.dsn()) as connection:
        assert (
            connection.execute("SELECT datname FROM pg_database WHERE datname ~ '^outbox_dump_'").fetchall()
            == []
        )


def test_the_dump_is_free_of_versions() -> None:
    text = (
        "--\n-- PostgreSQL database dump\n--\n\n\\restrict abc\n\n-- Dumped from database version 18.4\n"
        "-- Dumped by pg_dump version 18.4\n\nSET transaction_timeout = 0;\n"
        "SELECT pg_catalog.set_config('search_path', '', false);\n\n\n\n"
        "CREATE TABLE t (a integer CONSTRAINT s_a_not_null NOT NULL);\n\n\n"
        "--\n-- PostgreSQL database dump complete\n--\n\n\\unrestrict abc\n"
    )
    assert normalise(text) == "CREATE TABLE t (a integer NOT NULL);\n"


def test_the_code_needs_the_newest_migration() -> None:
    heads = ScriptDirectory.from_config(Config(ROOT / "alembic.ini")).get_heads()
    assert heads == [HEAD]


def test_a_person_makes_upgrades_and_drops_the_outbox(blank_database: str) -> None:
    before = outbox_migrate(blank_database, "status")
    assert (before.returncode, before.stdout) == (3, "there is no outbox\n")
    part = outbox_migrate(blank_database, "up", "0006")
    assert part.returncode == 0, part.stderr
    assert part.stdout.splitlines()[-1] == f"the outbox is at revision 0006; this release needs {HEAD}"
    up = outbox_migrate(blank_database, "up")
    assert [line.split(":")[0] for line in up.stdout.splitlines()[:-1]] == [
        f"applied {number:04}" for number in range(7, int(HEAD) + 1)
    ]
    assert (
        outbox_migrate(blank_database, "up").stdout
        == f"the outbox is at revision {HEAD}, which this release needs\n"
    )
    with psycopg.connect(blank_database) as connection:
        require_current(connection)
    told = outbox_migrate(blank_database, "status", "--json")
    assert json.loads(told.stdout) == {"revision": HEAD, "needed": HEAD, "current": True}
    unasked = outbox_migrate(blank_database, "down", "base")
    assert unasked.returncode == 2
    assert "the whole outbox with its data" in unasked.stderr
    assert current(blank_database) == HEAD
    assert outbox_migrate(blank_database, "down", "base", "--yes").returncode == 0
    assert current(blank_database) is None


def test_a_revision_that_does_not_exist_is_refused(blank_database: str) -> None:
    refused = outbox_migrate(blank_database, "up", "9999")
    assert refused.returncode == 3
    assert refused.stderr == "outbox-migrate: upgrade to 9999: Can't locate revision identified by '9999'\n"


def test_an_index_that_was_built_before_the_migration_is_taken(blank_database: str) -> None:
    """docs/upgrade.md has the statement: concurrently, while the services of the former revision run."""
    upgrade(blank_database, "0003")
    page = (ROOT / "docs" / "upgrade.md").read_text("utf-8")
    (build,) = re.findall(r"`(CREATE INDEX CONCURRENTLY delivery_batches_idx .*?)`", page)
    index = "SELECT oid, pg_get_indexdef(oid) FROM pg_class WHERE relname = 'delivery_batches_idx'"
    with psycopg.connect(blank_database, autocommit=True) as connection:
        connection.execute(build.encode())
        built = connection.execute(index).fetchall()
        upgrade(blank_database)
        assert connection.execute(index).fetchall() == built
    assert_committed(blank_database, dump(blank_database))


def test_a_step_back_leaves_what_the_step_before_made(blank_database: str) -> None:
    upgrade(blank_database, "0012")
    before = dump(blank_database)
    upgrade(blank_database)
    downgrade(blank_database, "0012")
    assert dump(blank_database) == before


@pytest.mark.parametrize("key", ["plain", "it's', for itself", "two\nlines"])
def test_the_reason_of_a_replay_from_before_0013_loses_its_key(blank_database: str, key: str) -> None:
    upgrade(blank_database, "0012")
    query(
        blank_database,
        "INSERT INTO outbox.replay (from_batch, to_batch, target_cluster_id, target_servers, rows_total, events_total, state, reason)"
        " VALUES (1, 7, 'c', 's', 1, 1, 'paused', %s), (1, 7, 'c', 's', 1, 1, 'paused', 'another reason')",
        f"row_refused: the target refuses the row of batch 7, session key '{key}', for itself (too_large): why. Nothing",
    )
    upgrade(blank_database)
    assert query(blank_database, "SELECT reason FROM outbox.replay ORDER BY replay_id") == [
        (
            "row_refused: the target refuses the row of batch 7, session key (not kept), for itself (too_large): why. Nothing",
        ),
        ("another reason",),
    ]


@pytest.mark.parametrize("key", ["plain", "it's", "two\nlines", "a' that ends at b"])
def test_the_end_of_a_run_from_before_0014_loses_its_key(blank_database: str, key: str) -> None:
    upgrade(blank_database, "0013")
    said = "m:f failed for {} that ends at Position(topic='in', partition=0, offset=5) ([transform] on_error = \"stop\")"
    with psycopg.connect(blank_database, autocommit=True) as connection:
        rows = OutboxRows(blank_database, connection)
        rows.insert_parents("run")
        rows.insert("run")
        connection.execute(
            "UPDATE outbox.run SET ended_at = now(), ended_because = %s", (said.format(f"session {key!r}"),)
        )
        upgrade(blank_database)
        assert rows.value("SELECT ended_because FROM outbox.run") == said.format("the session")


def test_before_0015_no_position_has_a_digest_that_the_release_before_would_not_compute(
    blank_database: str,
) -> None:
    upgrade(blank_database)
    one = {"safe": 5, "sessions": 1, "events": 2, "bytes": 10}
    opened = {
        "topic": {"0": one | {"digest": "2-" + "a" * 32}, "1": one | {"digest": "b" * 32}, "2": one},
        "other": {"0": one | {"digest": "3-" + "c" * 32, "tombstones": "/w=="}},
    }
    left = {
        "topic": {"0": one, "1": one | {"digest": "b" * 32}, "2": one},
        "other": {"0": one | {"tombstones": "/w=="}},
    }
    with psycopg.connect(blank_database, autocommit=True) as connection:
        rows = OutboxRows(blank_database, connection)
        rows.insert_parents("savepoint")
        for table in ("batch", "savepoint"):
            rows.insert(table, open_state=Jsonb(opened))
        connection.execute("UPDATE outbox.generation SET open_state = %s", (Jsonb(opened),))
        downgrade(blank_database, "0014")
        found = rows.rows(
            "SELECT g.open_state, b.open_state, s.open_state FROM outbox.generation g, outbox.batch b, outbox.savepoint s"
        )
    assert found == [(left, left, left)]


def test_before_0019_nobody_knows_what_is_in_an_archive(blank_database: str) -> None:
    upgrade(blank_database)
    query(
        blank_database,
        "INSERT INTO outbox.archived (partition_name, from_batch, to_batch, archive_id, manifest_sha256, row_count, sessions, outputs,"
        " output_bytes) VALUES ('session_output_p00000000', 0, 9999, gen_random_uuid(), sha256(''), 0, 0, 0, 0)",
    )
    refused = outbox_migrate(blank_database, "down", "0018", "--yes")
    assert (refused.returncode != 0, "keep a copy of outbox.archived" in refused.stderr) == (True, True)
    assert (current(blank_database), query(blank_database, "SELECT count(*) FROM outbox.archived")) == (
        "0019",
        [(1,)],
    )
    query(blank_database, "DELETE FROM outbox.archived")
    downgrade(blank_database, "0018")
    upgrade(blank_database)


def test_looking_at_the_revision_changes_nothing(blank_database: str) -> None:
    assert outbox_migrate(blank_database, "status").returncode == 3
    assert current(blank_database) is None
    assert "outbox" not in leftovers(blank_database)


def test_the_printed_sql_makes_the_same_schema(blank_database: str) -> None:
    whole = outbox_migrate(blank_database, "sql")
    assert whole.returncode == 0, whole.stderr
    last = outbox_migrate(blank_database, "sql", "--from", "0006")
    begins = "SET search_path = pg_catalog;\n\n"
    assert (whole.stdout.startswith(begins), last.stdout.startswith(begins)) == (True, True)
    assert whole.stdout.endswith(last.stdout.removeprefix(begins))
    with psycopg.connect(blank_database, autocommit=True) as connection:
        connection.execute(whole.stdout.encode())
        require_current(connection)
    assert_committed(blank_database, dump(blank_database))


def run_printed(dsn: str, printed: str) -> str:
    """Run the statements as a person does who lets psql go on after an error; return what it complains of."""
    command = [str(client_program("psql")), "-X", "-q", dsn]
    return subprocess.run(command, input=printed, capture_output=True, text=True, check=True).stderr


@pytest.fixture
def trapped(own_postgres: Postgres) -> Iterator[str]:
    """DSN of a database where a stranger has made functions and operators that fit ours better than Postgres' own do."""
    dsn = own_postgres.create_database("trapped")
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CREATE ROLE stranger LOGIN")
        connection.execute("CREATE TABLE public.called (what text)")
        connection.execute("GRANT INSERT ON public.called TO PUBLIC")
        connection.execute("GRANT CREATE ON SCHEMA public TO PUBLIC")
    with psycopg.connect(dsn, user="stranger", autocommit=True) as connection:
        connection.execute(
            "CREATE FUNCTION public.format(a text, b text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN"
            " INSERT INTO public.called VALUES (a); RETURN pg_catalog.format(a, VARIADIC ARRAY[b]); END $$"
        )
        number: LiteralString
        for number in ("smallint", "integer", "bigint"):
            planted: LiteralString
            for planted in (
                """CREATE FUNCTION public.joined(a text, b {}) RETURNS text LANGUAGE plpgsql AS $$ BEGIN
                   INSERT INTO public.called VALUES (a); RETURN pg_catalog.concat(a, b); END $$""",
                "CREATE OPERATOR public.|| (LEFTARG = text, RIGHTARG = {}, FUNCTION = public.joined)",
            ):
                connection.execute(sql.SQL(planted).format(sql.SQL(number)))
    yield dsn
    own_postgres.drop_database("trapped")
    query(own_postgres.dsn(), "DROP ROLE stranger")
    query(own_postgres.dsn(), f"DROP ROLE IF EXISTS {', '.join(ROLES)}")


@pytest.mark.parametrize("begins", ["", "BEGIN;\n"], ids=["alone", "in a transaction"])
@pytest.mark.parametrize("since", ["base", "0001"])
def test_the_printed_sql_calls_and_keeps_nothing_of_a_strangers(
    trapped: str, since: str, begins: str
) -> None:
    """A login that may create functions in a schema of the DBA's search_path would run code with the DBA's rights."""
    if since != "base":
        upgrade(trapped, since)
    assert run_printed(trapped, begins + migrate.upgrade_sql(since)).count("ERROR") == 0
    assert current(trapped) == HEAD
    assert query(trapped, "SELECT DISTINCT what FROM public.called") == []
    bound = query(
        trapped,
        "SELECT DISTINCT pg_describe_object(d.classid, d.objid, 0) FROM pg_depend d"
        " WHERE d.classid IN ('pg_rewrite'::regclass, 'pg_proc'::regclass, 'pg_constraint'::regclass, 'pg_attrdef'::regclass)"
        " AND (d.refobjid IN (SELECT oid FROM pg_operator WHERE oprnamespace = 'public'::regnamespace)"
        " OR d.refobjid IN (SELECT oid FROM pg_proc WHERE pronamespace = 'public'::regnamespace))",
    )
    assert bound == []


def test_the_printed_sql_changes_nothing_in_a_schema_of_somebody_else(own_postgres: Postgres) -> None:
    """Even if psql goes on after each error."""
    dsn = own_postgres.create_database("foreign_schema")
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CREATE ROLE stranger LOGIN")
        upgrade(dsn, "0006")
        connection.execute("CREATE FUNCTION outbox.planted() RETURNS integer LANGUAGE sql AS 'SELECT 1'")
        connection.execute("ALTER FUNCTION outbox.planted() OWNER TO stranger")
    before = dump(dsn)
    for since in ("base", "0006"):
        complaints = run_printed(dsn, migrate.upgrade_sql(since))
        assert "belongs to another role than postgres: migrate as the owner" in complaints
        assert (current(dsn), dump(dsn)) == ("0006", before)
    query(dsn, "DROP FUNCTION outbox.planted()")
    assert "ERROR" not in run_printed(dsn, migrate.upgrade_sql("0006"))
    assert current(dsn) == HEAD
    downgrade(dsn, "base")
    own_postgres.drop_database("foreign_schema")
    query(own_postgres.dsn(), "DROP ROLE stranger")


def test_the_printed_sql_makes_no_step_after_one_that_failed(blank_database: str) -> None:
    """Or a step would change a schema that it was not written for, and the version would never say so."""
    upgrade(blank_database, "0010")
    query(blank_database, "CREATE TABLE outbox.operation ()")  # which 0011 makes
    before = dump(blank_database)
    complaints = run_printed(blank_database, migrate.upgrade_sql("0010"))
    assert 'relation "operation" already exists' in complaints
    assert "is not at revision 0011" in complaints
    assert (current(blank_database), dump(blank_database)) == ("0010", before)
    query(blank_database, "DROP TABLE outbox.operation")
    run_printed(blank_database, migrate.upgrade_sql("0010"))
    again = run_printed(blank_database, migrate.upgrade_sql("0010"))
    assert "is not at revision 0010" in again
    assert_committed(blank_database, dump(blank_database))


def test_any_conninfo_works_with_options_of_its_own(blank_database: str) -> None:
    parts: dict[str, Any] = dict(conninfo_to_dict(blank_database))
    upgrade(make_conninfo(**parts, options="-c role=postgres"))
    assert current(blank_database) == HEAD


def test_services_refuse_a_database_without_an_outbox(blank_database: str) -> None:
    with psycopg.connect(blank_database) as connection:
        with pytest.raises(
            SchemaError, match=r"has no outbox, this code needs schema revision .* `outbox-migrate up`"
        ):
            require_current(connection)
        assert connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE


@pytest.mark.guarantee(124, 179)
@pytest.mark.parametrize(
    ("found", "mended_by"), [("0000", "run `outbox-migrate up`"), ("9999", "run the release that made it")]
)
def test_services_refuse_another_revision(outbox: OutboxRows, found: str, mended_by: str) -> None:
    outbox.connection.execute("UPDATE outbox.alembic_version SET version_num = %s", [found])
    with pytest.raises(
        SchemaError, match=f"is at schema revision {found}, this code needs {HEAD}: {mended_by}"
    ):
        require_current(outbox.connection)


def test_services_refuse_a_migration_that_never_finished(outbox: OutboxRows) -> None:
    outbox.connection.execute("DELETE FROM outbox.alembic_version")
    with pytest.raises(SchemaError, match="has no outbox"):
        require_current(outbox.connection)


def test_the_check_works_for_each_role_and_keeps_the_transaction(outbox: OutboxRows) -> None:
    for role in ROLES:
        with outbox.connection.transaction(force_rollback=True):
            outbox.connection.execute("SELECT set_config('role', %s, true)", [role])
            require_current(outbox.connection)
            assert outbox.value("SELECT current_user") == role


def test_a_user_without_a_role_learns_which_to_ask_for(own_postgres: Postgres) -> None:
    dsn = own_postgres.create_database("outsider")
    upgrade(dsn)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CREATE ROLE outsider LOGIN")
    with (
        psycopg.connect(dsn, user="outsider") as connection,
        pytest.raises(SchemaError, match="GRANT outbox_writer TO outsider"),
    ):
        require_current(connection)
    downgrade(dsn, "base")


def test_a_missing_database_is_named(postgres: PostgresServer) -> None:
    with pytest.raises(UnavailableError, match="OUTBOX_POSTGRES__DSN"):
        upgrade(postgres.dsn("no_such_database"))
    result = outbox_migrate(postgres.dsn("no_such_database"), "up")
    assert result.returncode == 3
    assert "no_such_database" in result.stdout + result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.guarantee(108)
def test_a_refused_connection_is_explained_without_the_password(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="OUTBOX_POSTGRES__DSN") as caught:
        upgrade(f"host={tmp_path} dbname=outbox user=me password=hidden-word")
    assert "hidden-word" not in str(caught.value)


@pytest.fixture
def migrator(own_postgres: Postgres) -> str:
    """DSN of a database whose owner is no superuser and may not create roles."""
    with psycopg.connect(own_postgres.dsn(), autocommit=True) as connection:
        connection.execute("DROP DATABASE IF EXISTS owned WITH (FORCE)")
        connection.execute("DROP ROLE IF EXISTS migrator")
        connection.execute("CREATE ROLE migrator LOGIN")
        connection.execute("CREATE DATABASE owned OWNER migrator")
    return make_conninfo(own_postgres.dsn("owned"), user="migrator")


def test_who_may_not_create_roles_learns_what_to_ask_for(own_postgres: Postgres, migrator: str) -> None:
    with pytest.raises(
        SchemaError, match=r"CREATEROLE unless .* CREATE ROLE outbox_writer NOLOGIN;"
    ) as caught:
        upgrade(migrator)
    administrator = str(caught.value).split("has run: ")[1]
    with psycopg.connect(own_postgres.dsn(), autocommit=True) as connection:
        connection.execute(administrator.encode())
    upgrade(migrator)
    with psycopg.connect(migrator) as connection:
        require_current(connection)
    downgrade(migrator, "base")
    # The roles are the administrator's: they stay.
    assert leftovers(migrator) == sorted(ROLES)
    with psycopg.connect(own_postgres.dsn(), autocommit=True) as connection:
        connection.execute(f"DROP ROLE {', '.join(ROLES)}".encode())


def test_samples_of_contents_that_an_earlier_schema_made_are_removed(blank_database: str) -> None:
    upgrade(blank_database, "0024")
    with psycopg.connect(blank_database, autocommit=True) as connection:
        outbox = OutboxRows(blank_database, connection)
        fill_audited_outbox(outbox)
        connection.execute("ANALYZE")
        samples = "SELECT count(*) FROM pg_stats WHERE schemaname = 'outbox' AND attname IN ('values', 'detail', 'event_values')"
        assert outbox.value(samples) > 0
        upgrade(blank_database)
        connection.execute("ANALYZE")
        assert outbox.value(samples) == 0
        assert (
            outbox.value(
                "SELECT count(*) FROM pg_stats WHERE schemaname = 'outbox' AND attname = 'session_key'"
            )
            > 0
        )


def test_rows_that_an_earlier_schema_erased_from_the_archive_get_their_generation(
    blank_database: str,
) -> None:
    upgrade(blank_database, "0025")
    with psycopg.connect(blank_database, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO outbox.generation (generation, start_offsets, topics, reason, policy, assembly, run_id)"
            " SELECT g, '{}', '{}', 'first', 'skip', '{}', gen_random_uuid() FROM generate_series(1, 3) g"
        )
        connection.execute(
            "INSERT INTO outbox.batch (batch_id, kind, generation, spark_batch, run_id, start_offsets, end_offsets, open_state,"
            " transform_fingerprint)"
            " SELECT g * 10, 'stream', g, 0, gen_random_uuid(), '{}', '{\"t\": {\"0\": 2}}', '{}', 'test' FROM generate_series(1, 2) g"
        )
        connection.execute(
            "INSERT INTO outbox.erased (key_hash, batch_id, generation, lane, revision, topic_ids, partitions, ends, outputs, output_bytes,"
            " topics, delivered_by, was_parked)"
            " SELECT 'k', e.b, e.g, 0, 0, '{t}', '{0}', '{1}', '{1}', 1, '{t}', '{}', false"
            " FROM (VALUES (5, 1), (9, 0), (11, 0), (21, 0)) e (b, g)"
        )
        upgrade(blank_database)
        found = connection.execute("SELECT batch_id, generation FROM outbox.erased ORDER BY 1").fetchall()
        keys = connection.execute("SELECT generation, through FROM outbox.erased_key ORDER BY 1").fetchall()
    assert found == [(5, 1), (9, 1), (11, 2), (21, 3)]
    assert keys == [(1, 1), (2, 1), (3, 1)], "what a reissue leaves out, of each generation"


def test_who_may_not_create_schemas_learns_what_to_ask_for(own_postgres: Postgres, migrator: str) -> None:
    other = own_postgres.create_database("not_theirs")
    try:
        with pytest.raises(SchemaError, match="It needs CREATE on the database"):
            upgrade(make_conninfo(other, user="migrator"))
    finally:
        own_postgres.drop_database("not_theirs")


@pytest.mark.parametrize("is_superuser", [True, False])
def test_a_schema_of_somebody_else_is_refused(
    own_postgres: Postgres, migrator: str, is_superuser: bool
) -> None:
    """Its owner could replace any function in it, whatever rights the migration has."""
    with psycopg.connect(own_postgres.dsn("owned"), autocommit=True) as connection:
        connection.execute("DROP ROLE IF EXISTS stranger")
        connection.execute("CREATE ROLE stranger")
        connection.execute("GRANT stranger TO migrator")
        connection.execute("CREATE SCHEMA outbox AUTHORIZATION stranger")
        connection.execute("GRANT ALL ON SCHEMA outbox TO PUBLIC")
        if not is_superuser:
            connection.execute("REVOKE stranger FROM migrator")
    login = own_postgres.dsn("owned") if is_superuser else migrator
    with pytest.raises(SchemaError, match=r"belongs to another role than .* migrate as the owner"):
        upgrade(login)
    with psycopg.connect(own_postgres.dsn("owned"), autocommit=True) as connection:
        assert connection.execute(
            "SELECT count(*) FROM pg_class WHERE relnamespace = 'outbox'::regnamespace"
        ).fetchone() == (0,)
        connection.execute("DROP OWNED BY stranger")
        connection.execute("DROP ROLE stranger")


@pytest.mark.parametrize(
    "planted",
    [
        "CREATE TABLE outbox.alembic_version (version_num varchar(32) PRIMARY KEY)",
        "CREATE FUNCTION outbox.planted() RETURNS integer LANGUAGE sql AS 'SELECT 1'",
    ],
    ids=["a table", "a function"],
)
@pytest.mark.parametrize("is_superuser", [True, False])
def test_what_somebody_else_has_put_into_the_schema_is_refused(
    own_postgres: Postgres, migrator: str, planted: str, is_superuser: bool
) -> None:
    """A trigger of its table would run with the rights of who migrates, although the schema itself was given to the migration's login."""
    owner = "CURRENT_USER" if is_superuser else "migrator"
    with psycopg.connect(own_postgres.dsn("owned"), autocommit=True) as connection:
        connection.execute("CREATE ROLE stranger")
        connection.execute("CREATE SCHEMA outbox AUTHORIZATION stranger")
        connection.execute("SET ROLE stranger")
        connection.execute(planted)
        connection.execute("RESET ROLE")
        connection.execute(f"ALTER SCHEMA outbox OWNER TO {owner}")
    login = own_postgres.dsn("owned") if is_superuser else migrator
    with pytest.raises(SchemaError, match="or something in it, belongs to another role"):
        upgrade(login)
    with psycopg.connect(own_postgres.dsn("owned"), autocommit=True) as connection:
        connection.execute("DROP SCHEMA outbox CASCADE")
        connection.execute("DROP ROLE stranger")


def test_a_database_of_another_encoding_is_refused(own_postgres: Postgres) -> None:
    with psycopg.connect(own_postgres.dsn(), autocommit=True) as connection:
        connection.execute(
            "CREATE DATABASE latin TEMPLATE template0 ENCODING 'LATIN1' LOCALE_PROVIDER libc LOCALE 'C'"
        )
    with pytest.raises(SchemaError, match="has encoding LATIN1"):
        upgrade(own_postgres.dsn("latin"))
    assert current(own_postgres.dsn("latin")) is None


@pytest.mark.guarantee(124)
def test_a_second_migration_waits_and_then_gives_up(blank_database: str) -> None:
    with psycopg.connect(blank_database) as other:
        other.execute("SELECT pg_advisory_lock(hashtext('outbox.migrate'))")
        with pytest.raises(UnavailableError, match="Another migration or a long transaction holds the lock"):
            upgrade(make_conninfo(blank_database, options="-c lock_timeout=100ms"))
    upgrade(blank_database)


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (
            errors.QueryCanceled("canceling statement due to statement timeout"),
            UnavailableError,
            "at a quieter time",
        ),
        (errors.ReadOnlySqlTransaction("cannot execute CREATE"), SchemaError, "name the primary"),
        (
            errors.AdminShutdown("terminating connection"),
            UnavailableError,
            "did not end: terminating connection",
        ),
        (errors.DuplicateTable("relation exists"), SchemaError, "rolled back: relation exists"),
    ],
)
def test_other_failures_say_what_to_do(error: psycopg.Error, kind: type[Exception], text: str) -> None:
    explained = explain(error)
    assert type(explained) is kind
    assert text in str(explained)


@pytest.mark.guarantee(124)
def test_a_failed_migration_leaves_no_relation_behind(blank_database: str) -> None:
    with psycopg.connect(blank_database, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA outbox")
        connection.execute("CREATE TABLE outbox.parked ()")
    with pytest.raises(SchemaError, match="rolled back"):
        upgrade(blank_database)
    with psycopg.connect(blank_database, autocommit=True) as connection:
        found = connection.execute(
            "SELECT relname FROM pg_class WHERE relnamespace = 'outbox'::regnamespace AND relkind = 'p'"
        )
        assert found.fetchall() == []
        connection.execute("DROP TABLE outbox.parked")
    upgrade(blank_database)
    assert current(blank_database) == HEAD
