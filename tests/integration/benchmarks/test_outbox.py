"""The outbox that the publisher is measured on, and what it is compared with."""

import psycopg

from benchmarks.support.outbox import fill, values_of


def test_the_bare_producer_sends_the_very_values_of_the_rows(database: str) -> None:
    fill(database, "bench", rows=50, lanes=2)
    with psycopg.connect(database) as connection:
        rows = connection.execute('SELECT session_key, "values" FROM outbox.session_output').fetchall()
    assert dict(rows) == {f"session-{n:010d}": values_of(n) for n in range(50)}
