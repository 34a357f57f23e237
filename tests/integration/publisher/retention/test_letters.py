"""Dead letters end where a limit is set: those that are dealt with first, open ones only where that was asked for."""

from typing import Any

import psycopg
import pytest

from publisher.audit.letters import check_letters
from publisher.retention.letters import remove_letters
from publisher.retention.plan import DropVerdict
from publisher.retention.retention import RightsError, run_once
from publisher.retention.survey import survey
from tests.support.outbox.batches import Outbox
from tests.support.outbox.old_outputs import DAY_S, add_batches, deliver_all, retention_settings
from tests.support.queries import query

LETTER = (
    "INSERT INTO outbox.dead_letter (topic_id, topic, partition, first_offset, last_offset, closing_offset, reason, generation, batch_id,"
    " session_key, detail, event_count, event_offsets, event_times_ms, event_values, state, resolved_batch, state_changed_at, created_at)"
    " SELECT 'id', 'events', 0, n, n, n, 'malformed', 1, 1, NULL, 'test', 2, ARRAY[n], '{0}', ARRAY[decode(repeat('ab', 500), 'hex')],"
    " %s, CASE %s WHEN 'resolved' THEN 1 END, now() - make_interval(days => %s), now() - make_interval(days => %s)"
    " FROM generate_series(%s::bigint, %s) n"
)


@pytest.fixture
def outbox(database: str) -> Outbox:
    """Ten letters of each state, that are ten days old; and five of each that are new."""
    outbox = Outbox(database, "out")
    outbox.batch({})
    first = 1
    for days, count in ((10, 10), (0, 5)):
        for state in ("discarded", "resolved", "open"):
            query(database, LETTER, state, state, days, days, first, first + count - 1)
            first += count
    return outbox


def left(outbox: Outbox) -> dict[str, int]:
    return dict(
        query(outbox.dsn, "SELECT state, count(*) FROM outbox.dead_letter GROUP BY state ORDER BY state")
    )


def run(outbox: Outbox, **retention: Any) -> int:
    if retention.get("drop_open_letters"):
        query(
            outbox.dsn,
            "GRANT EXECUTE ON FUNCTION outbox.remove_open_letters(double precision, bigint, bigint, integer) TO outbox_retention",
        )
    settings = retention_settings(outbox.dsn, **({"keep_s": None} | retention))
    return run_once(settings).pruned.letters


def test_letters_stay_for_ever_unless_a_limit_is_set(outbox: Outbox) -> None:
    assert run(outbox, keep_s=DAY_S) == 0
    assert left(outbox) == {"discarded": 15, "open": 15, "resolved": 15}


def test_by_age_those_that_are_dealt_with_go_and_open_ones_where_asked(outbox: Outbox) -> None:
    assert run(outbox, keep_letters_s=DAY_S) == 20
    assert left(outbox) == {"discarded": 5, "open": 15, "resolved": 5}
    assert run(outbox, keep_letters_s=DAY_S, drop_open_letters=True) == 10
    assert left(outbox) == {"discarded": 5, "open": 5, "resolved": 5}


def test_open_letters_need_a_grant_which_is_named_before_anything_is_done(outbox: Outbox) -> None:
    settings = retention_settings(outbox.dsn, keep_s=None, keep_letters_s=DAY_S, drop_open_letters=True)
    with pytest.raises(RightsError, match=r"GRANT EXECUTE ON FUNCTION outbox\.remove_open_letters"):
        run_once(settings)
    assert left(outbox) == {"discarded": 15, "open": 15, "resolved": 15}


def test_a_letter_that_was_dealt_with_just_now_stays_however_old_it_is(outbox: Outbox) -> None:
    query(
        outbox.dsn,
        "UPDATE outbox.dead_letter SET state = 'discarded', state_changed_at = now() WHERE state = 'open'",
    )
    assert run(outbox, keep_letters_s=DAY_S) == 20
    assert left(outbox) == {"discarded": 20, "resolved": 5}


def test_by_size_the_oldest_go_and_open_ones_last(outbox: Outbox) -> None:
    with psycopg.connect(outbox.dsn, autocommit=True) as connection:
        settings = retention_settings(outbox.dsn, keep_letters_bytes=0).retention
        whole = survey(connection, settings).letters.bytes
        assert whole is not None
        each = whole // 45
        assert run(outbox, keep_letters_bytes=whole - 12 * each) == 12
        assert left(outbox) == {"discarded": 5, "open": 15, "resolved": 13}
        assert run(outbox, keep_letters_bytes=10 * each) == 18
        assert left(outbox) == {"open": 15}, "open ones are not asked for"
        assert run(outbox, keep_letters_bytes=10 * each, drop_open_letters=True) == 5
    assert query(outbox.dsn, "SELECT min(first_offset) FROM outbox.dead_letter") == [(26,)], "the oldest went"


def test_each_step_is_a_short_transaction(outbox: Outbox) -> None:
    query(
        outbox.dsn,
        "CREATE TABLE public.steps (xid bigint);"
        " CREATE FUNCTION public.note() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN INSERT INTO public.steps VALUES (txid_current()); RETURN OLD; END $$;"
        " CREATE TRIGGER note BEFORE DELETE ON outbox.dead_letter FOR EACH ROW EXECUTE FUNCTION public.note()",
    )
    with psycopg.connect(outbox.dsn, autocommit=True) as connection:
        settings = retention_settings(outbox.dsn, keep_letters_s=DAY_S).retention
        assert remove_letters(connection, settings, rows_at_once=4) == 20
    counts = query(outbox.dsn, "SELECT count(*) FROM public.steps GROUP BY xid")
    assert sum(count for (count,) in counts) == 20
    assert max(count for (count,) in counts) <= 4


def test_what_was_removed_is_told_as_removed(outbox: Outbox) -> None:
    run(outbox, keep_letters_s=DAY_S)
    run(outbox, keep_letters_s=DAY_S, drop_open_letters=True)
    said = "SELECT reason, state, letters, events, newest_id FROM outbox.removed_letters ORDER BY newest_id"
    assert query(outbox.dsn, said) == [
        ("malformed", "discarded", 10, 20, 10),
        ("malformed", "resolved", 10, 20, 20),
        ("malformed", "open", 10, 20, 30),
    ]
    with psycopg.connect(outbox.dsn, autocommit=True) as connection:
        checks = {check.name: check for check in check_letters(connection)}
    assert (checks["removed_letters"].fails, checks["removed_letters"].count) == (False, 30)
    assert any("10 malformed (open), the newest of" in line for line in checks["removed_letters"].examples)


def test_letters_count_in_the_bytes_that_are_allowed(outbox: Outbox) -> None:
    add_batches(outbox.dsn, 10_005, every=500)
    deliver_all(outbox.dsn, 10_005)
    with psycopg.connect(outbox.dsn, autocommit=True) as connection:
        without = survey(connection, retention_settings(outbox.dsn).retention)
        outputs = sum(decision.partition.size for decision in without.decisions)
        limit = retention_settings(outbox.dsn, keep_s=None, keep_bytes=outputs).retention
        found = survey(connection, limit)
    assert found.letters.disk_bytes > 0
    assert next(decision.verdict for decision in found.decisions) is DropVerdict.DROP
