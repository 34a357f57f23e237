-- What psql's \d+ tells of the columns that 0005 added, and of those that mean something else since.

COMMENT ON COLUMN outbox.batch.spark_batch IS
    'Spark''s number of the batch, which begins anew with each run; NULL: no batch of the stream';
COMMENT ON COLUMN outbox.batch.open_state IS
    'what is open at end_offsets: {topic id: {partition: {"safe", "sessions", "events", "bytes", "digest", "tombstones", "upgraded"}}}. safe: '
    'offset of the oldest event of an open session; digest: of what is open, missing where it is not known; tombstones: base64, missing where '
    'there are none; upgraded: true from the upgrade to 0005 until the partition has records. A partition that is not named has nothing '
    'open. NULL: written before 0005, and not the newest of its generation';
COMMENT ON COLUMN outbox.generation.start_offsets IS
    'the position that it begins at: what closes below it was judged before';
COMMENT ON COLUMN outbox.generation.open_state IS
    'what is open at start_offsets, as in outbox.batch';
COMMENT ON COLUMN outbox.generation.lineage IS
    'the assembly descriptions that judged what is open at start_offsets, and from where on: [{"assembly": {...}, "start": {topic id: '
    '{partition: offset}}}]. Its own judges from start_offsets on; empty: from the beginning';
COMMENT ON COLUMN outbox.generation.accepted_deliveries IS
    'newest records of the publisher''s lanes that name batches which the ledger has lost, as a person accepted when it was opened: '
    '[{"batch_id": 7, "commit_id": "..."}]. They stop no start again; the lanes wait for `publisher resume`';
COMMENT ON COLUMN outbox.run.rebuild_offsets IS
    'offsets between safe and end, at the most, that are read again to find open sessions';
COMMENT ON COLUMN outbox.run.max_events IS
    'events that a batch of this run may have; NULL: started before 0005';
COMMENT ON COLUMN outbox.savepoint.generation IS
    'where it was made, to show; its position is in end_offsets and open_state';
COMMENT ON COLUMN outbox.savepoint.batch_id IS
    'the batch it was made after, to show; retention may have pruned it. NULL: at the start of its generation';
COMMENT ON COLUMN outbox.savepoint.end_offsets IS
    'how far the input was read, exclusive: {topic id: {partition: offset}}';
COMMENT ON COLUMN outbox.savepoint.open_state IS
    'what was open there, as in outbox.batch';
COMMENT ON COLUMN outbox.savepoint.lineage IS
    'the assembly descriptions that judged what was open there, `assembly` included, as in outbox.generation';
COMMENT ON COLUMN outbox.savepoint.assembly IS
    'the assembly description then';
COMMENT ON COLUMN outbox.savepoint.topics IS
    'the input then: {topic id: topic}';
COMMENT ON COLUMN outbox.savepoint.revision IS
    'outbox-revision then';

COMMENT ON COLUMN outbox.audit_session.generation IS
    'period with one assembly description and one revision (outbox.generation)';
COMMENT ON COLUMN outbox.audit_session_output.generation IS
    'period with one assembly description and one revision (outbox.generation)';
COMMENT ON COLUMN outbox.audit_history.generation IS
    'period with one assembly description and one revision (outbox.generation)';
COMMENT ON COLUMN outbox.audit_dead_letter.generation IS
    'period with one assembly description and one revision (outbox.generation)';
COMMENT ON COLUMN outbox.audit_ledger.generation IS
    'period with one assembly description and one revision (outbox.generation)';
COMMENT ON COLUMN outbox.audit_ledger.problem IS
    'missing: ids left out before it; discontinuous: it does not begin where its generation''s former batch ended, or where its '
    'generation begins; offsets: end before start or safe after end; time: committed before its predecessor';
COMMENT ON VIEW outbox.audit_input IS
    'How far each input partition is dealt with: by the newest batch of the stream, or by the newest generation''s start where that has '
    'committed none yet.';
COMMENT ON COLUMN outbox.audit_input.newest_batch IS
    'the newest batch of the stream, NULL: the newest generation has committed none yet';
