"""The outbox that the publisher is measured on, and what it is compared with."""

import psycopg
from pydantic import SecretStr

from benchmarks.support.outbox import SyntheticOutbox, values_of
from service.settings import PostgresSettings, Settings


def test_the_bare_producer_sends_the_very_values_of_the_rows(database: str) -> None:
    settings = Settings.model_construct(postgres=PostgresSettings(dsn=SecretStr(database)))
    SyntheticOutbox(settings, "bench", "bare", lanes=2).hide(50)
    with psycopg.connect(database) as connection:
        rows = connection.execute('SELECT session_key, "values" FROM outbox.session_output').fetchall()
    assert dict(rows) == {f"session-{n:010d}": values_of(n) for n in range(50)}
