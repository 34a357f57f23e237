-- Moves every time of a table, which names its query: all but session_output hold times, and take seconds to rewrite.

-- name: generation
UPDATE outbox.generation SET created_at = created_at + %(by)s

-- name: run
UPDATE outbox.run SET started_at = started_at + %(by)s, ended_at = ended_at + %(by)s

-- name: savepoint
UPDATE outbox.savepoint SET created_at = created_at + %(by)s

-- name: lane_epoch
UPDATE outbox.lane_epoch SET created_at = created_at + %(by)s

-- name: lane
UPDATE outbox.lane SET mirrored_at = mirrored_at + %(by)s

-- name: parked
UPDATE outbox.parked SET created_at = created_at + %(by)s, state_changed_at = state_changed_at + %(by)s

-- name: replay
UPDATE outbox.replay SET created_at = created_at + %(by)s, state_changed_at = state_changed_at + %(by)s

-- name: batch
UPDATE outbox.batch SET created_at = created_at + %(by)s

-- name: delivery
UPDATE outbox.delivery SET committed_at = committed_at + %(by)s

-- name: dead_letter
UPDATE outbox.dead_letter SET created_at = created_at + %(by)s, state_changed_at = state_changed_at + %(by)s
