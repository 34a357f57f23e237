"""DEVSTACK_POSTGRES and DEVSTACK_KAFKA: other servers than devstack's own."""

from pathlib import Path

import psycopg
import pytest

from devstack.kafka import LOCK_VARIABLE, Kafka
from devstack.postgres import INSTALLATION_VARIABLE, Postgres, client_program
from devstack.processes.errors import DevstackError
from tests.matrix.installations import postgres_of_the_wheel


def test_the_installation_that_is_named_is_started_and_sorts_as_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """16 has no built-in locale."""
    for name, value in postgres_of_the_wheel().items():
        monkeypatch.setenv(name, value)
    server = Postgres(tmp_path / "postgres", fast=True)
    try:
        server.start()
        with psycopg.connect(server.dsn(), autocommit=True) as connection:
            assert connection.info.server_version // 10_000 == 16
            assert connection.info.parameter_status("server_encoding") == "UTF8"
            found = connection.execute(
                "SELECT word FROM unnest(ARRAY['a', 'B', 'é', 'Z', 'z', '-', '😀', '\uffff']) word ORDER BY word"
            ).fetchall()
        assert [word for (word,) in found] == ["-", "B", "Z", "a", "z", "é", "\uffff", "😀"]
    finally:
        server.destroy()


def test_a_folder_that_is_no_installation_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(INSTALLATION_VARIABLE, str(tmp_path))
    with pytest.raises(
        DevstackError, match=f"{INSTALLATION_VARIABLE} is '{tmp_path}', which has no bin/initdb"
    ):
        client_program("psql")


def test_the_lock_file_that_is_named_is_the_brokers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = tmp_path / "kafka.lock"
    monkeypatch.setenv(LOCK_VARIABLE, str(lock))
    broker = Kafka(tmp_path / "kafka")
    with pytest.raises(DevstackError, match=f"{LOCK_VARIABLE} is '{lock}', which is not a file"):
        broker.start()
    lock.write_text("# nothing\n", "utf-8")
    assert broker.jars_lock() == lock
