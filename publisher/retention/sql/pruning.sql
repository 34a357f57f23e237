-- Deletes rows that the ledger and the logs no longer need, in steps. The functions decide which rows (db/schema.sql).

-- name: batches
SELECT p.pruned, p.last_batch, p.more FROM outbox.prune_batches(%(keep_s)s, %(after)s, %(rows)s) p

-- name: lanes
SELECT l.epoch, l.lane FROM outbox.lane l ORDER BY l.epoch, l.lane

-- name: deliveries
SELECT p.pruned, p.more FROM outbox.prune_deliveries(%(epoch)s, %(lane)s, %(keep_s)s, %(rows)s) p

-- name: resumes
SELECT outbox.prune_resumes()

-- name: parked
SELECT outbox.prune_parked(%(keep_s)s, %(rows)s)

-- name: epochs
SELECT outbox.prune_epochs(%(keep_s)s)

-- name: erased
SELECT outbox.prune_erased(%(keep_s)s, %(rows)s)

-- name: processes
SELECT outbox.prune_processes(%(keep_s)s, %(rows)s)

-- name: replay_keys
SELECT outbox.prune_replay_keys(%(keep_s)s, %(rows)s)

-- name: replays
SELECT outbox.prune_replays(%(keep_s)s, %(rows)s)

-- name: operations
SELECT outbox.prune_operations(%(keep_s)s, %(rows)s)
