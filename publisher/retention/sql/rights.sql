-- ALTER TABLE and DROP TABLE ask for the rights of the owner, of each partition too.
SELECT current_user::text, c.relname::text, pg_get_userbyid(c.relowner)::text
FROM pg_class c
WHERE c.relnamespace = 'outbox'::regnamespace
  AND (c.relname IN ('session_output', 'batch', 'delivery', 'lane', 'lane_epoch', 'publisher_process', 'replay', 'replay_key') OR c.relname ~ '^session_output_p\d{8}$')
  AND c.relkind IN ('r', 'p')
  AND NOT pg_has_role(c.relowner, 'USAGE')
ORDER BY c.relname
LIMIT 1
