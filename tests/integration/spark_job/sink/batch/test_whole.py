"""A batch on a real Postgres is stored whole and as it was, and counts as the audit counts it."""

from datetime import UTC, datetime

import pytest

from db.connection import Connection
from spark_job import OutputEvent
from spark_job.monitoring import metrics
from tests.support.sink.batches import TOPIC_ID, SinkRun, session, still_open
from tests.support.sink.written import counted, one

E = OutputEvent


@pytest.mark.guarantee(1)
def test_a_batch_is_stored_whole_and_byte_for_byte(sink_run: SinkRun, connection: Connection) -> None:
    moment = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    outputs = [
        E("t.one", b"\x00\xff"),
        E("t.two", {"k": "ä"}, key="other", headers=[("h", "v")], partition=3, timestamp=moment),
        E("t.one", None),
    ]
    committed = sink_run.write(
        0, session("schlüssel", 5, 9, outputs), session("empty", 1, 2, []), still_open(0, events=7)
    )
    assert committed is not None
    assert (committed.batch_id, committed.sessions, committed.output_events) == (1, 2, 3)
    row = connection.execute(
        'SELECT session_key, revision, topics, "values", keys, headers, partitions, timestamps_ms, session_starts, session_ends, '
        "session_outputs, session_events, session_topic_ids FROM outbox.session_output ORDER BY session_key DESC"
    ).fetchall()
    assert row[0] == (
        "schlüssel", 0, ["t.one", "t.two", "t.one"], [b"\x00\xff", b'{"k":"\xc3\xa4"}', None], [None, b"other", None],
        [None, [["h", "v"]], None], [None, 3, None], [None, 1_767_323_045_000, None], [5], [9], [3], [5], [TOPIC_ID],
    )  # fmt: skip
    assert row[1] == ("empty", 0, [], [], None, None, None, None, [1], [2], [0], [2], [TOPIC_ID])
    batch = one(
        connection,
        "SELECT kind, input_events, sessions, output_events, spark_batch, part, generation, run_id FROM outbox.batch",
    )
    assert batch == ("stream", 7, 2, 3, 0, 0, 1, sink_run.run_id)


@pytest.mark.guarantee(133)
def test_a_count_that_fails_after_the_commit_costs_only_itself(
    sink_run: SinkRun, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(**_: object) -> None:
        raise ValueError("counters can only be incremented")

    monkeypatch.setattr(metrics, "committed", fails)
    assert sink_run.write(0, session("a", 0, 9, [E("t", b"v")])) is not None
    monkeypatch.undo()
    before = counted("batches"), counted("output_events")
    assert sink_run.write(1, session("a", 100, 109, [E("t", b"v")])) is not None
    assert (counted("batches") - before[0], counted("output_events") - before[1]) == (1, 1)


def test_what_the_job_stores_the_audit_finds_in_order(sink_run: SinkRun, connection: Connection) -> None:
    """Counts and bytes of the ledger are those of the rows, as the audit counts them: of values, whatever goes with them."""
    outputs = [
        E("t.one", b"\x00\xff"),
        E("t.two", {"k": "\u00e4"}, key="other", headers=[("h", "v")]),
        E("t.one", None),
    ]
    sink_run.write(0, session("a", 5, 9, outputs), session("empty", 1, 2, []), still_open(0, events=7))
    connection.execute("SET ROLE outbox_auditor")
    assert connection.execute("SELECT * FROM outbox.audit_reconciliation").fetchall() == []
    assert one(connection, "SELECT output_bytes FROM outbox.batch") == len(b"\x00\xff") + len(
        '{"k":"\u00e4"}'.encode()
    )
