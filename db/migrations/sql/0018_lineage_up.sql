CREATE VIEW outbox.output_lineage AS
SELECT s.topic AS input_topic, s.topic_id AS input_topic_id, s.partition AS input_partition, s.start_offset AS first_offset,
       s.end_offset AS last_offset, s.input_events, s.session_key, s.started_at, s.ended_at,
       s.batch_id, s.batch_kind, s.generation, b.run_id, b.transform_fingerprint, g.assembly, s.committed_at,
       o.outbox_id, o.revision, o.epoch, o.lane, o.delivery_seq, o.state, o.delivered_at, o.topic, o.kafka_offsets
FROM outbox.audit_session s
JOIN outbox.audit_session_output o
    ON o.session_key = s.session_key AND o.batch_id = s.batch_id
    AND split_part(o.outbox_id, '/', 1) = s.topic_id
    AND split_part(o.outbox_id, '/', 2)::integer = s.partition
    AND split_part(o.outbox_id, '/', 3)::bigint = s.end_offset
JOIN outbox.batch b ON b.batch_id = s.batch_id
JOIN outbox.generation g ON g.generation = s.generation;

GRANT SELECT ON outbox.output_lineage TO outbox_auditor;

COMMENT ON VIEW outbox.output_lineage IS 'Where each output came from and where it went: one row per output event, from its input records to its place in Kafka. Ask by session_key, or by batch_id.';
COMMENT ON COLUMN outbox.output_lineage.input_topic IS 'input topic; NULL: no generation names it';
COMMENT ON COLUMN outbox.output_lineage.input_topic_id IS 'id of the input topic';
COMMENT ON COLUMN outbox.output_lineage.input_partition IS 'partition of the input topic';
COMMENT ON COLUMN outbox.output_lineage.first_offset IS 'offset of the session''s first event; other sessions'' events may lie between it and the last one';
COMMENT ON COLUMN outbox.output_lineage.last_offset IS 'offset of the session''s last event';
COMMENT ON COLUMN outbox.output_lineage.input_events IS 'events of the session';
COMMENT ON COLUMN outbox.output_lineage.session_key IS 'key of the session''s events';
COMMENT ON COLUMN outbox.output_lineage.started_at IS 'time of the session''s first event';
COMMENT ON COLUMN outbox.output_lineage.ended_at IS 'time of the session''s last event';
COMMENT ON COLUMN outbox.output_lineage.batch_id IS 'number of the ledger row (outbox.batch) that it was committed with';
COMMENT ON COLUMN outbox.output_lineage.batch_kind IS 'stream, retry (of a dead letter) or requeue (of a parked row)';
COMMENT ON COLUMN outbox.output_lineage.generation IS 'generation (outbox.generation) that the batch belongs to';
COMMENT ON COLUMN outbox.output_lineage.run_id IS 'run (outbox.run) that committed the batch';
COMMENT ON COLUMN outbox.output_lineage.transform_fingerprint IS 'fingerprint of the transform''s code in that batch';
COMMENT ON COLUMN outbox.output_lineage.assembly IS 'settings by which the generation assembles sessions';
COMMENT ON COLUMN outbox.output_lineage.committed_at IS 'when the batch was committed to the outbox';
COMMENT ON COLUMN outbox.output_lineage.outbox_id IS 'header outbox-id: <input topic id>/<partition>/<offset of the session''s last event>/<index>';
COMMENT ON COLUMN outbox.output_lineage.revision IS '0; more after a restore with policy reissue, as the header outbox-revision says';
COMMENT ON COLUMN outbox.output_lineage.epoch IS 'lane epoch of the batch';
COMMENT ON COLUMN outbox.output_lineage.lane IS 'lane that sends the row';
COMMENT ON COLUMN outbox.output_lineage.delivery_seq IS 'transaction of the lane (outbox.delivery) that sent it first; NULL: not sent, or that record is kept no more';
COMMENT ON COLUMN outbox.output_lineage.state IS 'delivered, pending, parked, requeued, discarded or skipped, as in audit_session';
COMMENT ON COLUMN outbox.output_lineage.delivered_at IS 'when that transaction was recorded';
COMMENT ON COLUMN outbox.output_lineage.topic IS 'output topic';
COMMENT ON COLUMN outbox.output_lineage.kafka_offsets IS '{partition: [first, last offset]} of that transaction in the output topic; with one partition named, that is the event''s. NULL: not known';
