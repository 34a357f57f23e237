-- Dead letters: their size, and which of them retention removes. The functions count what they remove in outbox.removed_letters.

-- name: disk
SELECT pg_total_relation_size('outbox.dead_letter'), has_function_privilege('outbox.letters_kept(double precision)', 'EXECUTE')

-- name: kept
SELECT k.closed, k.open, k.bytes, k.old_closed, k.old_open FROM outbox.letters_kept(%(keep_s)s) k

-- name: remove_closed
SELECT r.removed, r.freed, r.last_id, r.more FROM outbox.remove_closed_letters(%(keep_s)s, %(after)s, %(excess)s, %(rows)s) r

-- name: remove_open
SELECT r.removed, r.freed, r.last_id, r.more FROM outbox.remove_open_letters(%(keep_s)s, %(after)s, %(excess)s, %(rows)s) r
