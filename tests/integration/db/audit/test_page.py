"""Every query of docs/audit.md runs as it stands, as the auditor; there is one for every view."""

import re

import pytest

from tests.support.outbox.audited import PAGE, QUERIES
from tests.support.outbox.valid_rows import OutboxRows


@pytest.mark.parametrize("name", QUERIES)
def test_the_query_runs_as_the_auditor(shared_audited_outbox: OutboxRows, name: str) -> None:
    with shared_audited_outbox.connection.transaction(force_rollback=True):
        shared_audited_outbox.connection.execute("SET LOCAL ROLE outbox_auditor")
        cursor = shared_audited_outbox.connection.execute(QUERIES[name].encode())
        # What the page shows begins with the columns of what ran.
        shown = PAGE.split(f"-- query: {name}\n")[1].split("```")[2].split("\n")[1]
        assert [column.strip() for column in shown.split("|")] == [
            column.name for column in cursor.description or []
        ]


def test_the_page_has_a_query_for_every_view(shared_audited_outbox: OutboxRows) -> None:
    views = {
        name
        for (name,) in shared_audited_outbox.rows(
            "SELECT relname::text FROM pg_class WHERE relkind = 'v' AND relname ~ '^audit_'"
        )
    }
    asked = set(re.findall(r"outbox\.(audit_\w+)", "".join(QUERIES.values())))
    assert views == asked - {"audit_reconcile"}
