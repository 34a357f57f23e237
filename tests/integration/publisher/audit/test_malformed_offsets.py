"""The publisher's login may write any JSON into `outbox.delivery.kafka_offsets`: whoever reads it names that, and believes none of it."""

import psycopg
import pytest

from publisher.audit.readback.readback import first_offsets
from publisher.audit.readback.topics import Topic
from publisher.audit.scope import Limits, read_scope
from publisher.outbox.sent_offsets import MalformedOffsetsError
from publisher.trace.outputs import found_in_kafka, outputs_of_key
from tests.support.console import console_of
from tests.support.outbox.batches import Outbox, simple
from tests.support.outbox.old_outputs import deliver_all
from tests.support.processes.publishers import settings_for
from tests.support.queries import query

NOWHERE = "127.0.0.1:1"
FORGED = [
    '{"out": 5}',
    '{"out": []}',
    '{"out": {"0": 5}}',
    '{"out": {"x": [7, 9]}}',
    '{"out": {"0": ["a", 9]}}',
    '{"out": {"0": [1.5, 9]}}',
    '{"out": {"0": [1' + "0" * 5_000 + ", 9]}}",
    '{"out": ' + '{"a": ' * 2_000 + "1" + "}" * 2_000 + "}",
]


@pytest.fixture(params=FORGED, ids=lambda text: str(text)[:30])
def forged(request: pytest.FixtureRequest, database: str) -> Outbox:
    """Two batches that are delivered; of the first one's delivery the offsets are forged."""
    outbox = Outbox(database, "out")
    for batch in (1, 2):
        outbox.batch(simple(batch, keys=1))
    deliver_all(database, 2)
    query(
        database,
        "INSERT INTO outbox.delivery (epoch, lane, seq, after_batch, after_key, to_batch, sessions, events, kafka_offsets)"
        " SELECT 1, o.lane, row_number() OVER w, lag(o.batch_id, 1, 0::bigint) OVER w, NULL, o.batch_id, 1, cardinality(o.topics),"
        ' CASE o.batch_id WHEN 1 THEN %s ELSE \'{"out": {"0": [7, 9]}}\' END::jsonb'
        " FROM outbox.session_output o WINDOW w AS (PARTITION BY o.lane ORDER BY o.batch_id)",
        request.param,
    )
    return outbox


def test_an_audit_of_a_range_reads_from_the_beginning_what_such_a_delivery_may_have_sent(
    forged: Outbox,
) -> None:
    with psycopg.connect(forged.dsn, autocommit=True) as connection:
        scope = read_scope(connection, Limits())
        begins = first_offsets(connection, scope, [Topic("out", "id", 1)], [{"0": 3}], [{"0": 100}], set())
    assert begins == [{"0": 3}]


def test_a_trace_refuses_to_search_where_it_says(forged: Outbox) -> None:
    with psycopg.connect(forged.dsn, autocommit=True) as connection:
        outputs = outputs_of_key(connection, "k0000")
    assert {each.state for each in outputs} == {"delivered"}
    with pytest.raises(MalformedOffsetsError, match=r"delivery 1: .*no publisher writes.*--scan"):
        found_in_kafka(settings_for(forged.dsn, NOWHERE).kafka, outputs)


def test_the_console_shows_it(forged: Outbox) -> None:
    with console_of(settings_for(forged.dsn, NOWHERE)) as console:
        assert "malformed: {" in console.shown("/deliveries")
        assert "malformed: " in console.shown("/session?key=k0000")
        assert "which no publisher writes" in console.shown("/session?key=k0000&kafka=1")
