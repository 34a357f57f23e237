"""Every command of the publisher that changes something leaves its row in the operator log, with the change or not at all."""

import os
import pwd
from pathlib import Path
from typing import Any

import psycopg
import pytest
from typer.testing import CliRunner

from publisher.cli import app
from service.settings import Settings
from tests.support.outbox.batches import Outbox, Session, simple
from tests.support.outbox.deliveries import deliver
from tests.support.outbox.old_outputs import Command, add_batches, deliver_all, retention_settings
from tests.support.processes.environment import variables_of
from tests.support.queries import query

Row = tuple[str, dict[str, Any], dict[str, Any]]
LOGIN = "operations_test_ann"


@pytest.fixture
def ann(outbox: Outbox, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """The commands run with a login of their own, which has the publisher's role and no more."""
    query(outbox.dsn, f"DROP ROLE IF EXISTS {LOGIN}")
    query(outbox.dsn, f"CREATE ROLE {LOGIN} LOGIN IN ROLE outbox_publisher")
    for name, value in variables_of(settings).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("OUTBOX_POSTGRES__DSN", psycopg.conninfo.make_conninfo(outbox.dsn, user=LOGIN))
    return settings


def run(line: str, code: int = 0) -> None:
    """Run `publisher <line>`."""
    result = CliRunner().invoke(app, line.split())
    assert result.exit_code == code, (line, result.output, result.exception)


def rows(outbox: Outbox) -> list[Row]:
    """What the log has, oldest first, and then forget it."""
    found = query(outbox.dsn, "SELECT command, arguments, result FROM outbox.operation ORDER BY operation_id")
    who = query(outbox.dsn, "SELECT DISTINCT login, os_user FROM outbox.operation")
    assert who in ([], [(LOGIN, pwd.getpwuid(os.geteuid()).pw_name)])
    query(outbox.dsn, "DELETE FROM outbox.operation")
    return found


def park(outbox: Outbox, batch_id: int, keys: list[str]) -> None:
    query(
        outbox.dsn,
        "INSERT INTO outbox.parked (session_key, batch_id, epoch, lane, lease_token, reason, detail)"
        " SELECT session_key, batch_id, 1, lane, 1, 'too_large', 'as a test says' FROM outbox.session_output"
        " WHERE batch_id = %s AND session_key = ANY (%s)",
        batch_id,
        keys,
    )


def test_lanes_parked_rows_and_missing_topics(outbox: Outbox, ann: Settings) -> None:
    outbox.batch(simple(1, keys=4))
    deliver(ann)
    park(outbox, 1, ["k0000", "k0001", "k0002"])
    assert rows(outbox) == []

    run("parked requeue 1/k0000 --yes")
    run("parked discard --reason too_large --yes")
    assert rows(outbox) == [
        ("publisher parked requeue", {"rows": 1}, {"rows": 1, "batch": 2}),
        ("publisher parked discard", {"reasons": ["too_large"]}, {"rows": 2}),
    ]
    run("parked discard --all --yes")
    assert rows(outbox) == [], "nothing was left to discard"

    outbox.batch({"k": [Session([b"1"], 900, topics=["nowhere"])]})
    run("parked park --topic nowhere --yes")
    run("parked park --topic nowhere --end --yes")
    run("lanes set 3 --yes")
    run("lanes set 3 --yes")
    assert rows(outbox) == [
        ("publisher parked park", {"topic": "nowhere"}, {}),
        ("publisher parked park", {"topic": "nowhere", "end": True}, {}),
        ("publisher lanes set", {"lanes": 3}, {"epoch": 2, "from_batch": 4}),
    ]


def test_replays(outbox: Outbox, ann: Settings) -> None:
    outbox.batch(simple(1, keys=4))
    deliver(ann)
    run("replay start --key k0000 --key k0001 --rate 1000 --yes")
    ((command, arguments, result),) = rows(outbox)
    assert (command, result) == ("publisher replay start", {"replay": 1})
    assert (arguments["keys"], arguments["events_per_second"], arguments["from_batch"]) == (2, 1000, 1)
    assert "k0000" not in str(arguments)

    query(outbox.dsn, "UPDATE outbox.replay SET state = 'running'")
    run("replay pause 1")
    run("replay go-on 1 --rate 500")
    query(outbox.dsn, "UPDATE outbox.replay SET state = 'running'")
    run("replay cancel 1")
    run("replay cancel 1")
    assert rows(outbox) == [
        ("publisher replay pause", {"replay": 1}, {"state": "paused"}),
        ("publisher replay go-on", {"replay": 1}, {"events_per_second": 500}),
        ("publisher replay go-on", {"replay": 1}, {"state": "running"}),
        ("publisher replay cancel", {"replay": 1}, {"state": "cancelled"}),
    ]


def test_a_resume_leaves_a_row_for_each_lane_and_for_what_the_outbox_is_bound_to(
    outbox: Outbox, ann: Settings
) -> None:
    outbox.batch(simple(1, keys=4))
    outbox.batch(simple(2, keys=4))
    deliver(ann)
    run("resume --from batch 2 --dry-run")
    assert rows(outbox) == []
    run("resume --from batch 2 --lane 1 --yes")
    ((command, arguments, result),) = rows(outbox)
    assert (command, arguments) == ("publisher resume", {"from": "batch", "batch": 2, "lanes": [1]})
    assert {name: result[name] for name in ("epoch", "lane", "after_batch", "events_skipped")} == {
        "epoch": 1,
        "lane": 1,
        "after_batch": 1,
        "events_skipped": 0,
    }
    assert result["events_again"] > 0

    query(outbox.dsn, "UPDATE outbox.identity SET system_identifier = 1")
    query(outbox.dsn, "DELETE FROM outbox.operation")
    run("resume --from kafka --accept-new-server --yes")
    rebound = "DELETE FROM outbox.operation WHERE command = 'outbox.identity' RETURNING login, result"
    ((login, places),) = query(outbox.dsn, rebound)
    assert (login, places["before"]["system_identifier"]) == (LOGIN, 1)
    ((command, arguments, result),) = rows(outbox)
    assert (command, arguments) == ("publisher resume", {"from": "kafka", "accept_new_server": True})
    assert query(outbox.dsn, "SELECT system_identifier FROM outbox.identity") == [
        (result["system_identifier"],)
    ]


def test_retention_leaves_a_row_for_each_partition_and_each_step(outbox: Outbox, tmp_path: Path) -> None:
    newest = 30_005
    outbox.batch(simple(1, keys=3))
    add_batches(outbox.dsn, newest, every=500)
    deliver_all(outbox.dsn, newest)
    command = Command(retention_settings(outbox.dsn, keep_ledger_s=60), tmp_path)
    code, output = command.run("run", "--yes")
    assert code == 0, output
    found = query(outbox.dsn, "SELECT command, result FROM outbox.operation ORDER BY operation_id")
    assert {command for command, _ in found} == {"publisher retention run"}
    assert [result["dropped"] for _, result in found if "dropped" in result] == [
        "session_output_p00000000",
        "session_output_p00000001",
        "session_output_p00000002",
    ]
    assert sum(result.get("ledger_rows", 0) for _, result in found) > 0


def test_a_row_that_cannot_be_written_undoes_the_change(outbox: Outbox, ann: Settings) -> None:
    outbox.batch(simple(1, keys=4))
    deliver(ann)
    park(outbox, 1, ["k0000"])
    query(outbox.dsn, "ALTER TABLE outbox.operation ADD CONSTRAINT operation_refused CHECK (false) NOT VALID")
    for line in (
        "parked requeue --all --yes",
        "parked discard --all --yes",
        "lanes set 3 --yes",
        "replay start --all --yes",
        "resume --from batch 1 --yes",
    ):
        result = CliRunner().invoke(app, line.split())
        assert isinstance(result.exception, psycopg.errors.CheckViolation), (line, result.output)
    assert query(outbox.dsn, "SELECT state FROM outbox.parked") == [("parked",)]
    assert query(outbox.dsn, "SELECT count(*) FROM outbox.lane_epoch") == [(1,)]
    assert query(outbox.dsn, "SELECT count(*) FROM outbox.batch") == [(1,)]
    assert query(outbox.dsn, "SELECT count(*) FROM outbox.replay") == [(0,)]
    assert query(outbox.dsn, "SELECT count(*) FROM outbox.delivery WHERE kind = 'resume'") == [(0,)]
    assert query(outbox.dsn, "SELECT count(*) FROM outbox.lane WHERE stopped_why IS NOT NULL") == [(0,)]
