"""What tells an outbox from a copy of itself, and what does not. Needs no Kafka."""

import uuid
from collections.abc import Iterator

import psycopg
import pytest

from devstack.databases import PostgresServer
from publisher.outbox.identity import bind, check_unchanged
from publisher.protocol.stop_reasons import StoppedError


@pytest.fixture
def copy(database: str, postgres: PostgresServer) -> Iterator[str]:
    """A copy of the outbox on the same server, under another name."""
    with psycopg.connect(database, autocommit=True) as connection:
        bind(connection, "cluster", "outbox")
    original = str(psycopg.conninfo.conninfo_to_dict(database)["dbname"])
    name = f"test_{uuid.uuid4().hex}"
    yield postgres.create_database(name, template=original)
    postgres.drop_database(name)


@pytest.mark.guarantee(165)
def test_a_copy_under_another_name_on_the_same_server_is_not_noticed(database: str, copy: str) -> None:
    with psycopg.connect(database, autocommit=True) as one, psycopg.connect(copy, autocommit=True) as other:
        assert bind(other, "cluster", "outbox") == bind(one, "cluster", "outbox")
        check_unchanged(other, bind(one, "cluster", "outbox"))


def test_a_copy_with_another_identity_of_its_own_is_noticed(database: str, copy: str) -> None:
    with psycopg.connect(copy, autocommit=True) as other:
        other.execute("UPDATE outbox.identity SET outbox_uuid = gen_random_uuid()")
        with (
            psycopg.connect(database, autocommit=True) as one,
            pytest.raises(StoppedError, match="other_outbox"),
        ):
            check_unchanged(other, bind(one, "cluster", "outbox"))
