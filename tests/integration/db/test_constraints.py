"""Each impossible state is refused by the constraint that is named for it."""

import uuid
from typing import Any

import psycopg
import pytest
from psycopg import errors
from psycopg.types.json import Jsonb

from contract.session_keys import MAX_KEY_BYTES
from tests.support.outbox.valid_rows import NO_OFFSETS, PARENTS, RUN, VALID, OutboxRows

OTHER_RUN = uuid.UUID(int=2)
LEASE = {
    "lease_holder": "host",
    "lease_until": "2030-01-01",
    "lease_backend_pid": 1,
    "lease_backend_start": "2030-01-01",
}
ANSWER = {"answered_at": "2030-01-01", "outcome": "done", "answer": "stopped"}

REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("generation", {"generation": 0}, "generation_positive"),
    ("generation", {"reason": "whim"}, "generation_reason_known"),
    ("generation", {"policy": "guess"}, "generation_policy_known"),
    ("generation", {"revision": -1}, "generation_revision_natural"),
    ("generation", {"start_offsets": Jsonb([])}, "generation_objects"),
    ("generation", {"open_state": Jsonb(None)}, "generation_objects"),
    ("generation", {"topics": Jsonb("topic")}, "generation_objects"),
    ("generation", {"assembly": Jsonb(1)}, "generation_objects"),
    ("generation", {"from_generation": 1}, "generation_continues_one"),
    ("generation", {"from_batch": 1}, "generation_continues_one"),
    ("generation", {"reason": "savepoint"}, "generation_savepoint_named"),
    ("generation", {"savepoint": "before-deploy"}, "generation_savepoint_named"),
    ("generation", {"lineage": Jsonb({})}, "generation_lineage_array"),
    ("generation", {"cut_offsets": Jsonb([])}, "generation_cut_object"),
    ("generation", {"accepted_deliveries": Jsonb({})}, "generation_accepted_array"),
    ("batch", {"batch_id": 0}, "batch_positive"),
    ("batch", {"part": -1}, "batch_positive"),
    ("batch", {"kind": "other"}, "batch_kind_known"),
    ("batch", {"start_offsets": None}, "batch_stream_offsets"),
    ("batch", {"end_offsets": None}, "batch_stream_offsets"),
    ("batch", {"spark_batch": None}, "batch_stream_offsets"),
    ("batch", NO_OFFSETS | {"open_state": Jsonb({})}, "batch_stream_offsets"),
    ("batch", {"kind": "retry"}, "batch_stream_offsets"),
    ("batch", {"kind": "requeue", **NO_OFFSETS, "spark_batch": 1}, "batch_stream_offsets"),
    ("batch", {"kind": "retry", **NO_OFFSETS, "open_state": Jsonb({})}, "batch_stream_offsets"),
    ("batch", {"open_state": None}, "batch_open_state_known"),
    ("batch", {"open_state": Jsonb([1])}, "batch_offsets_objects"),
    ("batch", {"spark_batch": -1}, "batch_counts_natural"),
    ("batch", {"sessions": -1}, "batch_counts_natural"),
    ("batch", {"output_bytes": -1}, "batch_output_bytes_natural"),
    ("session_output", {"session_key": ""}, "session_output_key_bounds"),
    ("session_output", {"session_key": "k" * (MAX_KEY_BYTES + 1)}, "session_output_key_bounds"),
    ("session_output", {"lane": -1}, "session_output_natural"),
    ("session_output", {"revision": -1}, "session_output_natural"),
    ("session_output", {"session_starts": [1, 2]}, "session_output_sessions_parallel"),
    ("session_output", {"session_ended_ms": []}, "session_output_sessions_parallel"),
    (
        "session_output",
        {c: [] for c in VALID["session_output"] if c.startswith("session_") and c != "session_key"}
        | {"topics": [], "values": []},
        "session_output_sessions_parallel",
    ),
    ("session_output", {"session_partitions": [None]}, "session_output_sessions_natural"),
    ("session_output", {"session_ends": [-1]}, "session_output_sessions_natural"),
    ("session_output", {"session_events": [0]}, "session_output_sessions_natural"),
    ("session_output", {"session_started_ms": [None]}, "session_output_sessions_natural"),
    ("session_output", {"session_topic_ids": [""]}, "session_output_sessions_natural"),
    ("session_output", {"session_outputs": [1]}, "session_output_counts_agree"),
    ("session_output", {"values": [b""]}, "session_output_events_parallel"),
    ("session_output", {"keys": [b"a"]}, "session_output_events_parallel"),
    ("session_output", {"headers": [None]}, "session_output_events_parallel"),
    ("session_output", {"partitions": [1, 2, 3]}, "session_output_events_parallel"),
    ("session_output", {"timestamps_ms": []}, "session_output_events_parallel"),
    ("session_output", {"topics": ["out", None]}, "session_output_topics_named"),
    ("session_output", {"topics": ["out", ""]}, "session_output_topics_named"),
    ("dead_letter", {"partition": -1}, "dead_letter_natural"),
    (
        "dead_letter",
        {"event_count": 0, "event_offsets": [], "event_times_ms": [], "event_values": []},
        "dead_letter_natural",
    ),
    ("dead_letter", {"reason": "dislike"}, "dead_letter_reason_known"),
    ("dead_letter", {"state": "lost"}, "dead_letter_state_known"),
    ("dead_letter", {"state": "resolved"}, "dead_letter_resolved_by"),
    ("dead_letter", {"resolved_batch": 2}, "dead_letter_resolved_by"),
    ("dead_letter", {"last_offset": 4}, "dead_letter_offsets_ordered"),
    ("dead_letter", {"closing_offset": 5}, "dead_letter_offsets_ordered"),
    ("dead_letter", {"event_values": [b""]}, "dead_letter_events_parallel"),
    ("dead_letter", {"event_times_ms": [1]}, "dead_letter_events_parallel"),
    ("dead_letter", {"event_count": 1}, "dead_letter_events_parallel"),
    ("dead_letter", {"event_types": ["start_event"]}, "dead_letter_types_parallel"),
    ("lane_epoch", {"epoch": 0}, "lane_epoch_positive"),
    ("lane_epoch", {"from_batch": 0}, "lane_epoch_positive"),
    ("lane_epoch", {"lanes": 0}, "lane_epoch_positive"),
    ("lane_epoch", {"lanes": 1025}, "lane_epoch_positive"),
    ("lane", {"lane": -1}, "lane_natural"),
    ("lane", {"seq": -1}, "lane_natural"),
    ("lane", {"pruned_seq": -1}, "lane_pruned_natural"),
    ("lane", {"pruned_parked": -1}, "lane_pruned_parked_natural"),
    ("lane", {"taken": -1}, "lane_taken_natural"),
    ("lane", LEASE | {"lease_until": None}, "lane_lease_whole"),
    ("lane", {"lease_holder": "host"}, "lane_lease_whole"),
    ("lane", {"cursor_batch": 1}, "lane_cursor_committed"),
    ("lane", {"cursor_commit_id": RUN}, "lane_cursor_committed"),
    ("lane", {"cursor_key": "key"}, "lane_cursor_key_in_batch"),
    ("delivery", {"seq": 0}, "delivery_natural"),
    ("delivery", {"to_batch": 0}, "delivery_natural"),
    ("delivery", {"events": -1}, "delivery_natural"),
    ("delivery", {"after_batch": 2}, "delivery_forward"),
    ("delivery", {"after_batch": 0, "after_key": "key"}, "delivery_after_key_in_batch"),
    ("delivery", {"kafka_offsets": Jsonb([])}, "delivery_kafka_offsets_object"),
    ("parked", {"reason": "authorisation"}, "parked_reason_known"),
    ("parked", {"state": "lost"}, "parked_state_known"),
    ("parked", {"after_seq": -1}, "parked_after_seq_natural"),
    ("parked", {"state": "requeued"}, "parked_requeued_by"),
    ("parked", {"requeued_batch": 2}, "parked_requeued_by"),
    ("parked", {"state": "requeued", "requeued_batch": 1}, "parked_requeued_later"),
    ("parked_topic", {"topic": ""}, "parked_topic_named"),
    ("operation", {"command": ""}, "operation_named"),
    ("run", {"restored": "somehow"}, "run_restored_known"),
    ("run", {"rebuild_offsets": -1}, "run_natural"),
    ("run", {"max_events": 0}, "run_natural"),
    ("run", {"attempt": 0}, "run_natural"),
    ("run", {"resumes_at": Jsonb([])}, "run_objects"),
    ("run", {"ended_at": "2030-01-01"}, "run_ended_whole"),
    ("run", {"ended_because": "stopped"}, "run_ended_whole"),
    ("savepoint", {"name": ""}, "savepoint_name_form"),
    ("savepoint", {"name": "-x"}, "savepoint_name_form"),
    ("savepoint", {"name": "two words"}, "savepoint_name_form"),
    ("savepoint", {"name": "a" * 101}, "savepoint_name_form"),
    ("savepoint", {"name": "line\n"}, "savepoint_name_form"),
    ("savepoint", {"open_state": Jsonb([])}, "savepoint_objects"),
    ("savepoint", {"lineage": Jsonb({})}, "savepoint_lineage_array"),
    ("savepoint", {"revision": -1}, "savepoint_revision_natural"),
    ("request", {"kind": "explode"}, "request_kind_known"),
    ("request", {"arguments": Jsonb([])}, "request_arguments_object"),
    ("request", ANSWER | {"outcome": "perhaps"}, "request_outcome_known"),
    ("request", ANSWER | {"answer": None}, "request_answered_whole"),
    ("request", {"outcome": "done"}, "request_answered_whole"),
    ("delivery", {"kind": "guess"}, "delivery_kind_known"),
    ("lane", {"stopped_why": "kafka_lost"}, "lane_stopped_whole"),
    ("replay", {"state": "perhaps"}, "replay_state_known"),
    ("replay", {"from_batch": 4}, "replay_batches_ordered"),
    ("replay", {"from_batch": 0}, "replay_batches_ordered"),
    ("replay", {"requested": Jsonb([])}, "replay_requested_object"),
    ("replay", {"events_per_second": 0}, "replay_rate_positive"),
    ("replay", {"lease_holder": "host:1"}, "replay_lease_whole"),
    ("replay", {"rows_total": -1}, "replay_natural"),
    ("replay", {"seq": -1}, "replay_natural"),
    ("replay", {"rows_skipped": -1}, "replay_natural"),
]


@pytest.mark.parametrize("table", VALID)
def test_the_valid_row_of_each_table_is_accepted(outbox: OutboxRows, table: str) -> None:
    outbox.insert_parents(table)
    outbox.insert(table)


def test_a_resume_may_lead_back_to_before_what_was_delivered(outbox: OutboxRows) -> None:
    outbox.insert_parents("delivery")
    outbox.insert("delivery", kind="resume", after_batch=2, after_key="key", to_batch=0, sessions=0, events=0)


def test_each_impossible_state_is_refused_by_its_constraint(outbox: OutboxRows) -> None:
    """One database for all: a refused row leaves nothing behind."""
    for table in PARENTS:
        with outbox.connection.transaction(force_rollback=True):
            outbox.insert_parents(table)
            for spoiled, changes, constraint in REFUSED:
                if spoiled != table:
                    continue
                with pytest.raises(errors.CheckViolation) as caught, outbox.connection.transaction():
                    outbox.insert(table, **changes)
                assert caught.value.diag.constraint_name == constraint, (table, changes)


def test_every_check_constraint_has_a_row_that_it_refuses(outbox: OutboxRows) -> None:
    checks = outbox.rows(
        """SELECT conname FROM pg_constraint
           WHERE contype = 'c' AND connamespace = 'outbox'::regnamespace AND conislocal AND coninhcount = 0"""
    )
    tried = {constraint for _, _, constraint in REFUSED}
    elsewhere = {
        "identity_one_row",
        "identity_output_topic_ids_object",
        "writer_one_row",
        "writer_lock_one_row",
        "retention_one_row",
        "removed_letters_natural",
        "writer_whole",
        "writer_held_back_whole",
        "erased_parallel",
        "erased_row_or_letter",
        "archived_range",
        "archived_manifest",
        "archived_natural",
    }
    assert {name for (name,) in checks} == tried | elsewhere


@pytest.mark.parametrize(
    ("statement", "constraint"),
    [
        (
            "INSERT INTO outbox.identity (singleton, system_identifier, timeline) VALUES (false, 1, 1)",
            "identity_one_row",
        ),
        ("UPDATE outbox.identity SET output_topic_ids = '[]'", "identity_output_topic_ids_object"),
        ("INSERT INTO outbox.writer (singleton) VALUES (false)", "writer_one_row"),
        ("INSERT INTO outbox.writer_lock (singleton) VALUES (false)", "writer_lock_one_row"),
        ("INSERT INTO outbox.retention (singleton) VALUES (false)", "retention_one_row"),
        (
            (
                "INSERT INTO outbox.removed_letters (reason, state, letters, events, newest_id, newest_at)"
                " VALUES ('malformed', 'open', 0, 1, 1, now())"
            ),
            "removed_letters_natural",
        ),
        ("UPDATE outbox.writer SET run_id = gen_random_uuid()", "writer_whole"),
        ("UPDATE outbox.writer SET held_back_since = now()", "writer_held_back_whole"),
    ],
)
def test_identity_and_writer_stay_one_sound_row(outbox: OutboxRows, statement: str, constraint: str) -> None:
    with pytest.raises(errors.CheckViolation) as caught:
        outbox.connection.execute(statement.encode())
    assert caught.value.diag.constraint_name == constraint
    assert outbox.value("SELECT count(*) FROM outbox.identity") == 1
    assert outbox.value("SELECT count(*) FROM outbox.writer") == 1
    assert outbox.value("SELECT count(*) FROM outbox.writer_lock") == 1


@pytest.mark.parametrize(
    ("lane", "ends", "constraint"),
    [(0, [], "erased_parallel"), (None, [1], "erased_row_or_letter")],
)
def test_what_stands_for_an_erased_row_is_whole(
    outbox: OutboxRows, lane: int | None, ends: list[int], constraint: str
) -> None:
    with pytest.raises(errors.CheckViolation) as caught:
        outbox.connection.execute(
            """INSERT INTO outbox.erased (key_hash, batch_id, generation, epoch, lane, revision, topic_ids, partitions, ends, outputs,
                   output_bytes, topics, delivered_by, was_parked)
               VALUES ('x', 1, 1, 1, %s, 0, '{t}', '{0}', %s, '{1}', 0, '{}', '{}', false)""",
            [lane, ends],
        )
    assert caught.value.diag.constraint_name == constraint


@pytest.mark.parametrize(
    ("last", "digest", "rows", "constraint"),
    [(1, 32, 0, "archived_range"), (2, 31, 0, "archived_manifest"), (2, 32, -1, "archived_natural")],
)
def test_what_stands_for_an_archived_partition_is_whole(
    outbox: OutboxRows, last: int, digest: int, rows: int, constraint: str
) -> None:
    with pytest.raises(errors.CheckViolation) as caught:
        outbox.connection.execute(
            """INSERT INTO outbox.archived (partition_name, from_batch, to_batch, archive_id, manifest_sha256, row_count, sessions, outputs,
                   output_bytes)
               VALUES ('p', 2, %s, gen_random_uuid(), %s, %s, 0, 0, 0)""",
            [last, bytes(digest), rows],
        )
    assert caught.value.diag.constraint_name == constraint


@pytest.mark.guarantee(61)
@pytest.mark.parametrize(
    ("table", "changes", "constraint"),
    [
        ("generation", {"policy": "reissue"}, "generation_pkey"),
        ("batch", {"batch_id": 2}, "batch_spark_batch_key"),
        ("batch", {"spark_batch": 7}, "batch_pkey"),
        ("dead_letter", {"detail": "again"}, "dead_letter_identity_key"),
        ("lane_epoch", {"epoch": 2}, "lane_epoch_from_batch_key"),
        ("lane", {}, "lane_pkey"),
        ("delivery", {"to_batch": 5}, "delivery_pkey"),
        ("parked", {"reason": "invalid"}, "parked_pkey"),
        ("parked_topic", {}, "parked_topic_pkey"),
        ("run", {"attempt": 2}, "run_pkey"),
        ("savepoint", {"batch_id": None}, "savepoint_name_key"),
    ],
)
def test_a_second_row_of_the_same_identity_is_refused(
    outbox: OutboxRows, table: str, changes: dict[str, Any], constraint: str
) -> None:
    outbox.insert_parents(table)
    outbox.insert(table)
    with pytest.raises(errors.UniqueViolation) as caught:
        outbox.insert(table, **changes)
    assert caught.value.diag.constraint_name == constraint


def test_one_row_per_session_key_and_batch(outbox: OutboxRows) -> None:
    outbox.insert_parents("session_output")
    outbox.insert("session_output")
    with pytest.raises(errors.UniqueViolation) as caught:
        outbox.insert("session_output", lane=3)
    assert caught.value.diag.constraint_name == "session_output_p00000000_key"
    outbox.insert("session_output", batch_id=2)
    outbox.insert("session_output", batch_id=10_000)
    with pytest.raises(errors.UniqueViolation) as caught:
        outbox.insert("session_output", batch_id=10_000)
    assert caught.value.diag.constraint_name == "session_output_p00000001_key"
    parents = outbox.rows(
        """SELECT conname::text, pg_get_constraintdef(oid) FROM pg_constraint
           WHERE conrelid = 'outbox.session_output'::regclass AND contype = 'u'"""
    )
    assert parents == [("session_output_key", "UNIQUE (session_key, batch_id)")]


def test_retry_batches_and_parts_share_no_stream_position(outbox: OutboxRows) -> None:
    outbox.insert_parents("batch")
    outbox.insert("batch")
    outbox.insert("batch", batch_id=2, part=1)
    outbox.insert("batch", batch_id=5, run_id=OTHER_RUN)  # each run numbers its batches from 0 on
    outbox.insert("batch", batch_id=3, kind="retry", **NO_OFFSETS)
    outbox.insert("batch", batch_id=4, kind="requeue", **NO_OFFSETS)


def test_rows_of_several_sessions_need_counts_that_add_up(outbox: OutboxRows) -> None:
    outbox.insert_parents("session_output")
    doubled = {
        c: v * 2
        for c, v in VALID["session_output"].items()
        if c.startswith("session_") and c != "session_key"
    }
    outbox.insert("session_output", **doubled | {"session_outputs": [0, 2]})
    for wrong in ([1, 2], [3, -1], [None, 2]):
        with pytest.raises(psycopg.IntegrityError):
            outbox.insert("session_output", session_key="other", **doubled | {"session_outputs": wrong})


@pytest.mark.parametrize(
    ("table", "changes"),
    [
        ("generation", {"reason": "upgrade"}),
        ("generation", {"reason": "truncation"}),
        ("generation", {"reason": "fork"}),
        ("generation", {"reason": "checkpoint_lost"}),
        ("run", {"restored": "position"}),
        ("run", {"restored": "checkpoint"}),
        ("run", {"max_events": 1}),
        ("request", {"kind": "rescale"}),
        ("savepoint", {"batch_id": 9}),
    ],
)
def test_words_of_before_and_of_now_are_accepted(
    outbox: OutboxRows, table: str, changes: dict[str, Any]
) -> None:
    """A savepoint outlives its ledger row, and history keeps the words that it was written with."""
    outbox.insert_parents(table)
    outbox.insert(table, **changes)


def test_a_deleted_savepoints_name_can_be_used_again(outbox: OutboxRows) -> None:
    outbox.insert_parents("savepoint")
    outbox.insert("savepoint", deleted_at="2030-01-01")
    outbox.insert("savepoint", deleted_at="2030-01-02")
    outbox.insert("savepoint")


@pytest.mark.parametrize(
    ("table", "changes", "constraint"),
    [
        ("run", {"generation": 9}, "run_generation_fkey"),
        ("savepoint", {"generation": 9}, "savepoint_generation_fkey"),
    ],
)
def test_what_a_row_points_at_is_there(
    outbox: OutboxRows, table: str, changes: dict[str, Any], constraint: str
) -> None:
    outbox.insert_parents(table)
    with pytest.raises(errors.ForeignKeyViolation) as caught:
        outbox.insert(table, **changes)
    assert caught.value.diag.constraint_name == constraint


def test_keys_sort_by_their_bytes_whatever_the_locale(outbox: OutboxRows) -> None:
    outbox.insert_parents("session_output")
    keys = ["a", "B", "é", "Z", "~", "日本", "\U0001f600", "ab"]
    for key in keys:
        outbox.insert("session_output", session_key=key)
    found = [
        key for (key,) in outbox.rows("SELECT session_key FROM outbox.session_output ORDER BY session_key")
    ]
    assert found == sorted(keys, key=str.encode)
    # The test server may sort by bytes anyway; another one need not.
    collations = outbox.rows(
        """SELECT DISTINCT c.collname::text FROM pg_attribute a JOIN pg_class r ON r.oid = a.attrelid
           JOIN pg_collation c ON c.oid = a.attcollation
           WHERE r.relnamespace = 'outbox'::regnamespace AND a.attname IN ('session_key', 'cursor_key', 'after_key', 'to_key')"""
    )
    assert collations == [("C",)]


def test_the_ledger_time_grows_within_one_transaction(outbox: OutboxRows) -> None:
    """Writers queue for the lock after their transaction began, so the transaction's own time would run backwards."""
    with outbox.connection.transaction():
        outbox.insert_parents("batch")
        outbox.insert("batch")
        outbox.insert("batch", batch_id=2, spark_batch=1)
    assert outbox.value(
        "SELECT (SELECT created_at FROM outbox.batch WHERE batch_id = 2) > (SELECT created_at FROM outbox.batch WHERE batch_id = 1)"
    )
