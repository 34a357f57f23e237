"""What each role of the outbox may do, column by column: tests hold Postgres to these tables, and db/README.md links here."""

from db.migrate import ROLES
from tests.support.outbox.valid_rows import VALID

WRITER, PUBLISHER, AUDITOR, RETENTION, ERASER = ROLES

TABLES = ("identity", "writer", "retention", "removed_letters", "erased", *VALID)
READABLE = {
    WRITER: {*TABLES}
    - {
        "delivery",
        "operation",
        "parked_topic",
        "publisher_process",
        "replay",
        "replay_key",
    },
    PUBLISHER: {
        "identity",
        "generation",
        "batch",
        "session_output",
        "lane_epoch",
        "lane",
        "delivery",
        "erased",
        "parked",
        "parked_topic",
        "publisher_process",
        "removed_letters",
        "replay",
        "replay_key",
        "retention",
    },
    AUDITOR: {*TABLES},
    RETENTION: {"retention"},
    ERASER: {"identity"},
}
SHARED_VIEWS = {"event", "epoch_range", "lane_position"}
CHECKS = {
    "output_partition",
    "audit_ledger",
    "check_rows_kept",
    "check_stray_row",
    "check_delivery_chain",
    "check_delivery_counts",
    "check_mirror",
    "check_parked",
}
INSERTABLE = {
    WRITER: {
        "generation",
        "batch",
        "session_output",
        "dead_letter",
        "lane_epoch",
        "run",
        "savepoint",
        "request",
        "operation",
    },
    PUBLISHER: {
        "lane",
        "delivery",
        "parked",
        "parked_topic",
        "publisher_process",
        "replay",
        "replay_key",
        "operation",
    },
    AUDITOR: set[str](),
    RETENTION: {"operation"},
    ERASER: {"operation"},
}
UPDATABLE = {
    WRITER: {
        "dead_letter": {"state", "resolved_batch", "state_changed_at"},
        "writer": {
            "run_id",
            "host",
            "pid",
            "backend_pid",
            "backend_start",
            "heartbeat_at",
            "started_at",
            "held_back_since",
            "held_back_because",
        },
        "run": {"ended_at", "ended_because"},
        "savepoint": {"deleted_at"},
        "request": {"answered_at", "outcome", "answer"},
    },
    PUBLISHER: {
        "identity": {
            "cluster_id",
            "transactional_id_prefix",
            "output_topic_ids",
            "system_identifier",
            "timeline",
        },
        "parked_topic": {"decided_at", "ended_at"},
        "publisher_process": {"heartbeat_at", "alive_until", "backend_pid", "backend_start", "ended_at"},
        "replay": {
            "state",
            "reason",
            "events_per_second",
            "lease_token",
            "lease_holder",
            "lease_until",
            "lease_backend_pid",
            "lease_backend_start",
            "seq",
            "cursor_batch",
            "cursor_key",
            "rows_sent",
            "events_sent",
            "rows_skipped",
            "measured_rate",
            "state_changed_at",
        },
        "lane": {
            "lease_token",
            "lease_holder",
            "lease_until",
            "lease_backend_pid",
            "lease_backend_start",
            "seq",
            "cursor_batch",
            "cursor_key",
            "cursor_commit_id",
            "sessions",
            "events",
            "stopped_reason",
            "stopped_why",
            "mirrored_at",
            "taken",
        },
    },
    AUDITOR: dict[str, set[str]](),
    RETENTION: dict[str, set[str]](),
    ERASER: dict[str, set[str]](),
}
VIEWS = {
    WRITER: SHARED_VIEWS | {"output_partition"},
    PUBLISHER: SHARED_VIEWS | CHECKS,
    RETENTION: {"lane_position", "output_partition"},
    ERASER: {"output_partition"},
}
"""Views by role; the auditor reads all."""
READS = {
    "key_hash",
    "server_identity",
    "try_json",
    "cursor_covers",
    "cursor_text",
}
CHECKED = {
    "total",
    "batch_rows",
    "check_batch_counts",
    "check_delivery_counts",
    "check_emitted_twice",
    "check_parked_rows",
    "check_stray_rows",
    "open_at_upgrade",
}
CALLABLE = {
    WRITER: READS | {"total", "ensure_partitions", "lock_writer", "wake"},
    PUBLISHER: READS | CHECKED | {"change_lanes", "requeue", "discard_parked", "prune_deliveries", "wake"},
    AUDITOR: READS | CHECKED | {"audit_reconcile", "letters_kept"},
    RETENTION: {
        "server_identity",
        "ensure_partitions",
        "open_at_upgrade",
        "letters_kept",
        "drop_partition",
        "prune_batches",
        "prune_resumes",
        "prune_parked",
        "prune_epochs",
        "prune_processes",
        "prune_replay_keys",
        "prune_replays",
        "prune_operations",
        "prune_deliveries",
        "remove_closed_letters",
        "end_retention",
        "prune_erased",
    },
    ERASER: {
        "server_identity",
        "key_hash",
        "hold_for_erasure",
        "rows_of_key",
        "erase_rows",
        "letters_of_key",
        "erase_letters_of_key",
        "erase_letter_at",
        "open_input",
        "erase_traces",
    },
}
"""Functions by role; those that write are the owner's, and check for themselves what they are asked to do."""
OF_THE_OWNER = {
    "retention_floor",
    "remove_letters",
    "remove_open_letters",
    "erase_parked",
    "erase_letters",
    "require_read_committed",
    "log_rebinding",
    "remembers",
    "integer_at",
}
"""Functions that no role may call."""
