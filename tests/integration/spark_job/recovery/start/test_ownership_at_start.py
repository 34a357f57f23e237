"""Whose the outbox is: another owner that lives, one that is gone, and what is asked under the writer lock."""

from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from db.connection import Connection
from service.errors import ContinuityError, FencedError
from service.settings import Settings
from spark_job.input.offsets import Offsets
from spark_job.input.topics import InputTopics
from spark_job.ledger import ownership
from spark_job.recovery import outbox_behind
from spark_job.recovery.outbox_behind import Delivered
from tests.support.queries import query
from tests.support.recovery.starts import Input, ask, settings, start
from tests.support.sink.batches import P0, P1, SinkRun


def test_a_start_is_refused_while_another_owner_lives_and_takes_over_where_it_is_told_to(
    sink_run: SinkRun,
    connection: Connection,
    as_writer: Callable[[], Connection],
    database: str,
    delivered: list[Delivered],
) -> None:
    living, run_id = as_writer(), uuid4()
    with living.transaction():
        ownership.take_over(living, run_id, settings().job, force=False)
    with pytest.raises(FencedError, match=f"run {run_id} .* owns this outbox.*--take-over"):
        start(connection)
    with psycopg.connect(database, autocommit=True) as owner:  # may end the other's backend
        # What will be refused anyway must not end it.
        with pytest.raises(ContinuityError):
            start(owner, Input(latest={P0: 90, P1: 500}), take_over=True)
        assert ownership.read_owner(living).run_id == run_id
        delivered.append(Delivered(9, uuid4()))
        with pytest.raises(ContinuityError, match="--accept-outbox-behind"):
            start(owner, take_over=True)
        assert ownership.read_owner(living).run_id == run_id
        delivered.clear()
        start(owner, take_over=True)
    with pytest.raises(psycopg.OperationalError):
        living.execute("SELECT 1")


def test_an_owner_that_is_gone_and_a_former_run_of_this_process_are_no_obstacle(
    sink_run: SinkRun, connection: Connection, as_writer: Callable[[], Connection]
) -> None:
    hanging, run_id = as_writer(), uuid4()
    with hanging.transaction():
        ownership.take_over(hanging, run_id, settings().job, force=False)
    start(connection, former=(run_id,))


def test_kafka_is_asked_for_the_bounds_after_the_last_owners_last_commit_and_for_nothing_else_then(
    sink_run: SinkRun,
    connection: Connection,
    as_writer: Callable[[], Connection],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Bounds from before look as if Kafka had lost the input's end. Whatever else is asked is asked without the writer lock."""
    observer, under_lock = as_writer(), list[str]()

    def is_locked() -> bool:
        query = "SELECT FROM pg_locks WHERE relation = to_regclass('outbox.writer_lock') AND pid = %s"
        return observer.execute(query, [connection.info.backend_pid]).fetchone() is not None

    class Watched(Input):
        def bounds(self, topics: InputTopics, where: str) -> Offsets:
            if is_locked():
                under_lock.append(where)
            return super().bounds(topics, where)

    def newest_delivered(_settings: Settings, _uuid: UUID) -> list[Delivered]:
        assert not is_locked()
        return []

    monkeypatch.setattr(outbox_behind, "newest_delivered", newest_delivered)
    start(connection, Watched(), take_over=True)
    assert sorted(under_lock) == ["earliest", "latest"]


def logged(database: str) -> list[Any]:
    return query(database, "SELECT command, arguments, result FROM outbox.operation ORDER BY operation_id")


def test_the_flags_of_a_start_are_in_the_operator_log_with_what_it_did(
    sink_run: SinkRun, connection: Connection, database: str
) -> None:
    with pytest.raises(ContinuityError):
        start(connection, Input(latest={P0: 90, P1: 500}), take_over=True)
    assert logged(database) == []
    start(connection, take_over=True)
    ((command, arguments, result),) = logged(database)
    assert (command, arguments) == ("spark-job run", {"take_over": True})
    assert set(result) == {"run", "explanation"}
    start(connection)
    assert len(logged(database)) == 1, "a start without flags decides nothing for a person"


def test_what_a_command_asks_of_the_job_and_what_the_job_did_are_two_rows(
    sink_run: SinkRun, connection: Connection, database: str
) -> None:
    asked = ask(connection, savepoint="monday", policy="reissue")
    start(connection, request=asked)
    first, second = logged(database)
    request = {"request": asked.request_id}
    assert (first[0], first[1]["policy"]) == ("spark-job savepoint restore", "reissue")
    assert first[2] == request | {"run": str(asked.run_id)}
    assert (second[0], second[1], list(second[2])) == ("spark-job run", request, ["done"])
