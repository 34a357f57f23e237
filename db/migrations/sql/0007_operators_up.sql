-- When a publisher was last heard of. NULL: written by a publisher of before, which told only until when it counted as alive.
ALTER TABLE outbox.publisher_process ADD COLUMN heartbeat_at timestamptz;
COMMENT ON COLUMN outbox.publisher_process.heartbeat_at IS 'its last heartbeat';
GRANT UPDATE (heartbeat_at) ON outbox.publisher_process TO outbox_publisher;

-- The token also grows with every tenure of the same process, so it does not tell how often a lane went to a process.
ALTER TABLE outbox.lane
    ADD COLUMN taken bigint NOT NULL DEFAULT 0,
    ADD CONSTRAINT lane_taken_natural CHECK (taken >= 0);
COMMENT ON COLUMN outbox.lane.taken IS 'how often a publisher process took the lane, the same one again included; counted since schema 0007';
GRANT UPDATE (taken) ON outbox.lane TO outbox_publisher;

-- As before, but with the publisher's last heartbeat instead of the end of its lease.
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
    coalesce(p.heartbeat_at, least(p.alive_until, now())),
    NULL
FROM outbox.publisher_process p
WHERE p.ended_at IS NULL AND p.alive_until > now() - interval '1 day'
UNION ALL
SELECT 'publisher', 'none', NULL, NULL, NULL, NULL, NULL
WHERE NOT EXISTS (SELECT FROM outbox.publisher_process p WHERE p.ended_at IS NULL AND p.alive_until > now() - interval '1 day');

-- A person's decision: while this output topic does not exist, lanes park the rows that go to it instead of stopping.
CREATE TABLE outbox.parked_topic (
    topic      text        NOT NULL,
    decided_at timestamptz NOT NULL DEFAULT now(),
    ended_at   timestamptz,                        -- NULL: it stands
    CONSTRAINT parked_topic_pkey PRIMARY KEY (topic),
    CONSTRAINT parked_topic_named CHECK (topic <> '')
);
COMMENT ON TABLE outbox.parked_topic IS
    'Output topics whose rows are parked while the topic does not exist, by a person''s decision (publisher parked park).';
COMMENT ON COLUMN outbox.parked_topic.topic IS 'name of the output topic';
COMMENT ON COLUMN outbox.parked_topic.decided_at IS 'since when';
COMMENT ON COLUMN outbox.parked_topic.ended_at IS 'when the decision was taken back; NULL: it stands';
GRANT SELECT, INSERT, UPDATE (decided_at, ended_at) ON outbox.parked_topic TO outbox_publisher;
GRANT SELECT ON outbox.parked_topic TO outbox_auditor;

ALTER TABLE outbox.parked
    DROP CONSTRAINT parked_reason_known,
    ADD CONSTRAINT parked_reason_known CHECK (reason IN ('too_large', 'invalid', 'topic_missing'));

-- Session keys that were seen, but for which no output was ever stored. Reads all outputs that are kept.
CREATE VIEW outbox.audit_key_without_output AS
SELECT k.session_key, sum(k.sessions)::bigint AS sessions, sum(k.letters)::bigint AS dead_letters, sum(k.open_letters)::bigint AS open_letters,
       min(k.at) AS first_at, max(k.at) AS newest_at
FROM (
    SELECT o.session_key, cardinality(o.session_ends) AS sessions, 0 AS letters, 0 AS open_letters, cardinality(o.topics) AS outputs,
           b.created_at AS at
    FROM outbox.session_output o
    JOIN outbox.batch b ON b.batch_id = o.batch_id
    UNION ALL
    SELECT d.session_key, 0, 1, CASE WHEN d.state = 'open' THEN 1 ELSE 0 END, 0, d.created_at
    FROM outbox.dead_letter d
    WHERE d.session_key IS NOT NULL
) k
GROUP BY k.session_key
HAVING sum(k.outputs) = 0;
COMMENT ON VIEW outbox.audit_key_without_output IS
    'Session keys that were seen, but that never produced an output, of what is kept: their sessions are dead letters, or the transform returned nothing for them. Reads everything.';
COMMENT ON COLUMN outbox.audit_key_without_output.session_key IS 'key of the sessions';
COMMENT ON COLUMN outbox.audit_key_without_output.sessions IS 'sessions for which the transform returned no output';
COMMENT ON COLUMN outbox.audit_key_without_output.dead_letters IS 'dead letters, whatever their state';
COMMENT ON COLUMN outbox.audit_key_without_output.open_letters IS 'dead letters that nobody has retried or discarded';
COMMENT ON COLUMN outbox.audit_key_without_output.first_at IS 'when the first of them was committed';
COMMENT ON COLUMN outbox.audit_key_without_output.newest_at IS 'when the newest of them was committed';
GRANT SELECT ON outbox.audit_key_without_output TO outbox_auditor;
