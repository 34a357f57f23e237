"""Every query of docs/audit.md runs as it stands, as the auditor; there is one for every view."""

import re

import pytest
import yaml

from db.dbt_sources import sources
from tests.support.outbox.audited import PAGE, QUERIES
from tests.support.outbox.valid_rows import OutboxRows

SHOWN = dict(re.findall(r"-- query: (\w+)\n[^`]*```\n```\n(.*)\n", PAGE))
"""{query: the columns of the result that the page shows below it}; most queries speak for themselves."""


@pytest.mark.parametrize("name", QUERIES)
def test_the_query_runs_as_the_auditor(shared_audited_outbox: OutboxRows, name: str) -> None:
    with shared_audited_outbox.connection.transaction(force_rollback=True):
        shared_audited_outbox.connection.execute("SET LOCAL ROLE outbox_auditor")
        cursor = shared_audited_outbox.connection.execute(QUERIES[name].encode())
        columns = [column.name for column in cursor.description or []]
        assert [column.strip() for column in SHOWN.get(name, " | ".join(columns)).split("|")] == columns


def test_the_page_shows_the_results_that_need_an_explanation() -> None:
    assert SHOWN.keys() >= {"session_history", "session", "session_output", "latency"}


def test_the_page_has_a_query_for_every_view(shared_audited_outbox: OutboxRows) -> None:
    views = {
        name
        for (name,) in shared_audited_outbox.rows(
            "SELECT relname::text FROM pg_class WHERE relkind = 'v' AND relname ~ '^(audit_|output_lineage$)'"
        )
    }
    asked = set(re.findall(r"outbox\.(audit_\w+|output_lineage)", "".join(QUERIES.values())))
    assert views == asked - {"audit_reconcile"}


def test_dbt_gets_every_column_of_every_view_in_its_order(shared_audited_outbox: OutboxRows) -> None:
    (source,) = yaml.safe_load(sources())["sources"]
    declared = [(each["name"], [column["name"] for column in each["columns"]]) for each in source["tables"]]
    assert sorted(declared) == shared_audited_outbox.rows(
        """SELECT c.relname::text, array_agg(a.attname::text ORDER BY a.attnum)
           FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
           WHERE c.relkind = 'v' AND c.relname ~ '^(audit_|output_lineage$)'
           GROUP BY c.relname ORDER BY c.relname"""
    )
