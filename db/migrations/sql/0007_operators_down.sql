DROP VIEW outbox.audit_key_without_output;

-- The older code knows no such reason; the detail tells the topic.
UPDATE outbox.parked SET reason = 'invalid' WHERE reason = 'topic_missing';
ALTER TABLE outbox.parked
    DROP CONSTRAINT parked_reason_known,
    ADD CONSTRAINT parked_reason_known CHECK (reason IN ('too_large', 'invalid'));

DROP TABLE outbox.parked_topic;

CREATE OR REPLACE VIEW outbox.audit_service AS
SELECT
    'spark-job' AS service,
    CASE WHEN w.run_id IS NULL THEN 'none'
         WHEN EXISTS (SELECT FROM pg_stat_activity a WHERE a.pid = w.backend_pid AND (a.backend_start = w.backend_start) IS NOT FALSE) THEN 'running'
         ELSE 'gone' END AS state,
    w.host,
    w.pid,
    w.started_at,
    w.heartbeat_at AS seen_at,
    'held back: ' || w.held_back_because AS detail
FROM outbox.writer w
UNION ALL
SELECT
    'publisher',
    CASE WHEN p.alive_until >= now()
              AND EXISTS (SELECT FROM pg_stat_activity a WHERE a.pid = p.backend_pid AND (a.backend_start = p.backend_start) IS NOT FALSE)
         THEN 'running' ELSE 'gone' END,
    p.host,
    p.pid,
    p.started_at,
    least(p.alive_until, now()),
    NULL
FROM outbox.publisher_process p
WHERE p.ended_at IS NULL AND p.alive_until > now() - interval '1 day'
UNION ALL
SELECT 'publisher', 'none', NULL, NULL, NULL, NULL, NULL
WHERE NOT EXISTS (SELECT FROM outbox.publisher_process p WHERE p.ended_at IS NULL AND p.alive_until > now() - interval '1 day');

ALTER TABLE outbox.lane DROP COLUMN taken;
ALTER TABLE outbox.publisher_process DROP COLUMN heartbeat_at;
