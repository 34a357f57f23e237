"""Postgres accepts every query of the repository on a migrated database: names, types, plans, and the rights of the role that runs it.

No list of queries to keep: what is in a `.sql` file is run here. Only the kinds of statement that cannot be prepared are named.
"""

import pytest
from psycopg import sql

from tests.support.outbox.valid_rows import OutboxRows
from tests.support.query_files import QueryFile
from tests.support.rights.statements import STATEMENTS, attempt, role_of


@pytest.mark.guarantee(106)
@pytest.mark.parametrize(
    ("file", "name"), [pytest.param(*each, id=f"{'/'.join(each[0])}/{each[1]}") for each in STATEMENTS]
)
def test_it_is_accepted_with_the_rights_of_its_role(
    module_outbox: OutboxRows, file: QueryFile, name: str
) -> None:
    connection = module_outbox.connection
    with connection.transaction(force_rollback=True):
        if role := role_of(file, name):
            connection.execute(sql.SQL("SET LOCAL ROLE {}").format(sql.Identifier(role)))
        attempt(connection, file.load()[name])
