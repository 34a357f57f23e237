-- What psql's \d+ tells of the audit views and of their columns.

COMMENT ON VIEW outbox.audit_session IS
    'What became of a session: one row per session. Ask by session_key, or by batch_id.';
COMMENT ON COLUMN outbox.audit_session.session_key IS
    'key of the session''s events';
COMMENT ON COLUMN outbox.audit_session.batch_id IS
    'number of the ledger row (outbox.batch) that it was committed with';
COMMENT ON COLUMN outbox.audit_session.topic IS
    'input topic';
COMMENT ON COLUMN outbox.audit_session.partition IS
    'input partition';
COMMENT ON COLUMN outbox.audit_session.start_offset IS
    'offset of its start event';
COMMENT ON COLUMN outbox.audit_session.end_offset IS
    'offset of its end event';
COMMENT ON COLUMN outbox.audit_session.started_at IS
    'event time of its start';
COMMENT ON COLUMN outbox.audit_session.ended_at IS
    'event time of its end';
COMMENT ON COLUMN outbox.audit_session.input_events IS
    'events that it consists of';
COMMENT ON COLUMN outbox.audit_session.output_events IS
    'events that the transform made of it; 0 is possible';
COMMENT ON COLUMN outbox.audit_session.batch_kind IS
    'stream; retry: out of a dead letter; requeue: a copy of a row that was parked';
COMMENT ON COLUMN outbox.audit_session.generation IS
    'period in which one Spark checkpoint was in force (outbox.generation)';
COMMENT ON COLUMN outbox.audit_session.revision IS
    '0; more after a restore with policy reissue, as the header outbox-revision says';
COMMENT ON COLUMN outbox.audit_session.committed_at IS
    'when the batch was committed to the outbox';
COMMENT ON COLUMN outbox.audit_session.state IS
    'delivered; pending; parked, requeued, discarded: Kafka refused the row for itself (outbox.parked); skipped: a resume passed over'
    ' it';
COMMENT ON COLUMN outbox.audit_session.delivered_at IS
    'when the first transaction that carried it was recorded, right after Kafka''s commit; NULL: not sent, or retention has that '
    'record no more';
COMMENT ON COLUMN outbox.audit_session.epoch IS
    'lane epoch (outbox.lane_epoch)';
COMMENT ON COLUMN outbox.audit_session.lane IS
    'lane of the publisher that sends it';
COMMENT ON COLUMN outbox.audit_session.delivery_seq IS
    'number of the Kafka transaction in its lane (outbox.delivery)';
COMMENT ON COLUMN outbox.audit_session.topic_id IS
    'Kafka''s id of the input topic';

COMMENT ON VIEW outbox.audit_session_output IS
    'Where each output of a session went: one row per output event. Ask by session_key, or by batch_id.';
COMMENT ON COLUMN outbox.audit_session_output.session_key IS
    'key of the session''s events';
COMMENT ON COLUMN outbox.audit_session_output.batch_id IS
    'number of the ledger row (outbox.batch) that it was committed with';
COMMENT ON COLUMN outbox.audit_session_output.outbox_id IS
    'header outbox-id: <input topic id>/<partition>/<offset of the session''s last event>/<index>';
COMMENT ON COLUMN outbox.audit_session_output.revision IS
    '0; more after a restore with policy reissue, as the header outbox-revision says';
COMMENT ON COLUMN outbox.audit_session_output.topic IS
    'output topic';
COMMENT ON COLUMN outbox.audit_session_output.kafka_offsets IS
    '{partition: [first, last offset]} of its transaction in this topic, other rows'' records among them; with one partition named, '
    'that is the event''s. NULL: the offsets were lost in a crash, or it was not sent';
COMMENT ON COLUMN outbox.audit_session_output.state IS
    'delivered, pending, parked, requeued, discarded or skipped, as in audit_session';
COMMENT ON COLUMN outbox.audit_session_output.committed_at IS
    'when the batch was committed to the outbox';
COMMENT ON COLUMN outbox.audit_session_output.delivered_at IS
    'when the first transaction that carried it was recorded; NULL: not sent, or retention has that record no more';
COMMENT ON COLUMN outbox.audit_session_output.value_json IS
    'the value as JSON, NULL where it is none';
COMMENT ON COLUMN outbox.audit_session_output.value IS
    'value of the Kafka record, NULL: a tombstone';
COMMENT ON COLUMN outbox.audit_session_output.key IS
    'key of the Kafka record';
COMMENT ON COLUMN outbox.audit_session_output.headers IS
    'the transform''s own headers, [[name, value], ...]; NULL: none';
COMMENT ON COLUMN outbox.audit_session_output.generation IS
    'period in which one Spark checkpoint was in force (outbox.generation)';
COMMENT ON COLUMN outbox.audit_session_output.epoch IS
    'lane epoch (outbox.lane_epoch)';
COMMENT ON COLUMN outbox.audit_session_output.lane IS
    'lane of the publisher that sends it';
COMMENT ON COLUMN outbox.audit_session_output.delivery_seq IS
    'number of the Kafka transaction in its lane (outbox.delivery)';

COMMENT ON VIEW outbox.audit_history IS
    'What happened to a session key, one row per thing that happened. Ask by session_key, order by at.';
COMMENT ON COLUMN outbox.audit_history.session_key IS
    'key of the session''s events';
COMMENT ON COLUMN outbox.audit_history.at IS
    'when; of a replay: when it was made';
COMMENT ON COLUMN outbox.audit_history.what IS
    'closed, retried, reissued (again, with a higher revision): a session was committed; delivered; skipped; parked, requeued, discarded; dead-lettered, letter '
    'resolved, letter discarded; replayed';
COMMENT ON COLUMN outbox.audit_history.detail IS
    'in words';
COMMENT ON COLUMN outbox.audit_history.batch_id IS
    'number of the ledger row (outbox.batch) that it was committed with';
COMMENT ON COLUMN outbox.audit_history.generation IS
    'period in which one Spark checkpoint was in force (outbox.generation)';
COMMENT ON COLUMN outbox.audit_history.revision IS
    'NULL where it has none';

COMMENT ON VIEW outbox.audit_sent IS
    'What was sent to a topic: one row per output event and Kafka transaction of a lane that carried it. Ask by sent_at. What replays'
    ' sent is in audit_replayed. Rows that retention has dropped are not here any more.';
COMMENT ON COLUMN outbox.audit_sent.sent_at IS
    'when the transaction was recorded, right after Kafka''s commit';
COMMENT ON COLUMN outbox.audit_sent.topic IS
    'output topic';
COMMENT ON COLUMN outbox.audit_sent.session_key IS
    'key of the session''s events';
COMMENT ON COLUMN outbox.audit_sent.outbox_id IS
    'header outbox-id: <input topic id>/<partition>/<offset of the session''s last event>/<index>';
COMMENT ON COLUMN outbox.audit_sent.revision IS
    '0; more after a restore with policy reissue, as the header outbox-revision says';
COMMENT ON COLUMN outbox.audit_sent.kafka_offsets IS
    '{partition: [first, last offset]} of its transaction in this topic, other rows'' records among them; with one partition named, '
    'that is the event''s. NULL: the offsets were lost in a crash, or it was not sent';
COMMENT ON COLUMN outbox.audit_sent.batch_id IS
    'number of the ledger row (outbox.batch) that it was committed with';
COMMENT ON COLUMN outbox.audit_sent.committed_at IS
    'when the batch was committed to the outbox';
COMMENT ON COLUMN outbox.audit_sent.lag IS
    'from the commit to the outbox until sent_at';
COMMENT ON COLUMN outbox.audit_sent.value IS
    'value of the Kafka record, NULL: a tombstone';
COMMENT ON COLUMN outbox.audit_sent.key IS
    'key of the Kafka record';
COMMENT ON COLUMN outbox.audit_sent.headers IS
    'the transform''s own headers, [[name, value], ...]; NULL: none';
COMMENT ON COLUMN outbox.audit_sent.epoch IS
    'lane epoch (outbox.lane_epoch)';
COMMENT ON COLUMN outbox.audit_sent.lane IS
    'lane of the publisher that sends it';
COMMENT ON COLUMN outbox.audit_sent.delivery_seq IS
    'number of the Kafka transaction in its lane (outbox.delivery)';

COMMENT ON VIEW outbox.audit_topic_minute IS
    'How much was sent to each topic in each minute, replays left out. Ask by minute: it reads the rows that were sent then. Rows that'
    ' retention has dropped count no more.';
COMMENT ON COLUMN outbox.audit_topic_minute.minute IS
    'begin of the minute';
COMMENT ON COLUMN outbox.audit_topic_minute.topic IS
    'output topic';
COMMENT ON COLUMN outbox.audit_topic_minute.output_events IS
    'output events sent in this minute';
COMMENT ON COLUMN outbox.audit_topic_minute.deliveries IS
    'Kafka transactions with events for this topic';

COMMENT ON VIEW outbox.audit_minute IS
    'Throughput and lag by minute. Ask by minute. Minutes in which nothing happened have no row.';
COMMENT ON COLUMN outbox.audit_minute.minute IS
    'begin of the minute';
COMMENT ON COLUMN outbox.audit_minute.batches IS
    'Spark batches committed in this minute';
COMMENT ON COLUMN outbox.audit_minute.input_events IS
    'input events read by them';
COMMENT ON COLUMN outbox.audit_minute.sessions IS
    'sessions closed by them and by retries of dead letters; copies of parked rows do not count again';
COMMENT ON COLUMN outbox.audit_minute.output_events IS
    'output events of these sessions';
COMMENT ON COLUMN outbox.audit_minute.dead_letters IS
    'dead letters written by them';
COMMENT ON COLUMN outbox.audit_minute.deliveries IS
    'Kafka transactions that carried events, recorded in this minute';
COMMENT ON COLUMN outbox.audit_minute.delivered_sessions IS
    'sessions sent by them';
COMMENT ON COLUMN outbox.audit_minute.delivered_events IS
    'output events sent by them';
COMMENT ON COLUMN outbox.audit_minute.worst_lag_s IS
    'seconds from the commit of a batch to the delivery of its rows, the longest of this minute''s deliveries; NULL: nothing sent, or'
    ' the rows are dropped. Of rows that are dropped in part: the oldest that is left';

COMMENT ON VIEW outbox.audit_undelivered IS
    'Lanes with rows that wait to be delivered: no rows when nothing waits.';
COMMENT ON COLUMN outbox.audit_undelivered.epoch IS
    'lane epoch (outbox.lane_epoch)';
COMMENT ON COLUMN outbox.audit_undelivered.lane IS
    'lane of the epoch';
COMMENT ON COLUMN outbox.audit_undelivered.publisher IS
    'running; nobody: no living process holds the lane; waiting: an earlier epoch is not through; stopped: see stopped_reason';
COMMENT ON COLUMN outbox.audit_undelivered.oldest_batch IS
    'batch of the oldest row that waits';
COMMENT ON COLUMN outbox.audit_undelivered.oldest_committed_at IS
    'when that was committed';
COMMENT ON COLUMN outbox.audit_undelivered.oldest_age IS
    'for how long it waits';
COMMENT ON COLUMN outbox.audit_undelivered.batches_behind IS
    'batches after the lane''s cursor, with rows in this lane or without';
COMMENT ON COLUMN outbox.audit_undelivered.waiting_rows IS
    'rows that wait. Counted when it is asked for: seconds for millions; leave it out where the rest is enough';
COMMENT ON COLUMN outbox.audit_undelivered.stopped_reason IS
    'why the lane does not go on, and the commands that mend it';

COMMENT ON VIEW outbox.audit_undelivered_row IS
    'Rows that wait to be delivered: one row per session key and batch.';
COMMENT ON COLUMN outbox.audit_undelivered_row.epoch IS
    'lane epoch (outbox.lane_epoch)';
COMMENT ON COLUMN outbox.audit_undelivered_row.lane IS
    'lane of the publisher that sends it';
COMMENT ON COLUMN outbox.audit_undelivered_row.batch_id IS
    'number of the ledger row (outbox.batch) that it was committed with';
COMMENT ON COLUMN outbox.audit_undelivered_row.session_key IS
    'key of the session''s events';
COMMENT ON COLUMN outbox.audit_undelivered_row.committed_at IS
    'when the batch was committed to the outbox';
COMMENT ON COLUMN outbox.audit_undelivered_row.age IS
    'for how long it waits';
COMMENT ON COLUMN outbox.audit_undelivered_row.sessions IS
    'sessions in the row';
COMMENT ON COLUMN outbox.audit_undelivered_row.output_events IS
    'output events in the row';

COMMENT ON VIEW outbox.audit_dead_letter IS
    'Input that made no output: one row per dead letter. Ask by session_key, or by state = ''open''.';
COMMENT ON COLUMN outbox.audit_dead_letter.dead_letter_id IS
    'number of the letter, for `spark-job dead-letters`';
COMMENT ON COLUMN outbox.audit_dead_letter.created_at IS
    'when it was written';
COMMENT ON COLUMN outbox.audit_dead_letter.reason IS
    'malformed, no_start, restarted, timed_out, too_large or transform_failed';
COMMENT ON COLUMN outbox.audit_dead_letter.state IS
    'open, resolved or discarded';
COMMENT ON COLUMN outbox.audit_dead_letter.session_key IS
    'key of its events, NULL where none could be read';
COMMENT ON COLUMN outbox.audit_dead_letter.detail IS
    'in words; of a failed transform the traceback';
COMMENT ON COLUMN outbox.audit_dead_letter.topic IS
    'input topic';
COMMENT ON COLUMN outbox.audit_dead_letter.partition IS
    'input partition';
COMMENT ON COLUMN outbox.audit_dead_letter.first_offset IS
    'offset of its first event';
COMMENT ON COLUMN outbox.audit_dead_letter.last_offset IS
    'offset of its last event';
COMMENT ON COLUMN outbox.audit_dead_letter.closing_offset IS
    'offset of the event that decided it';
COMMENT ON COLUMN outbox.audit_dead_letter.events IS
    'events that it consists of';
COMMENT ON COLUMN outbox.audit_dead_letter.kept_events IS
    'events that are kept';
COMMENT ON COLUMN outbox.audit_dead_letter.first_event IS
    'the first event kept as JSON, NULL where it is none';
COMMENT ON COLUMN outbox.audit_dead_letter.batch_id IS
    'number of the ledger row (outbox.batch) that it was committed with';
COMMENT ON COLUMN outbox.audit_dead_letter.generation IS
    'period in which one Spark checkpoint was in force (outbox.generation)';
COMMENT ON COLUMN outbox.audit_dead_letter.revision IS
    '0; more after a restore with policy reissue, as the header outbox-revision says';
COMMENT ON COLUMN outbox.audit_dead_letter.resolved_batch IS
    'batch whose outputs cover its events';
COMMENT ON COLUMN outbox.audit_dead_letter.ended_at IS
    'when it was resolved or discarded, NULL: open';
COMMENT ON COLUMN outbox.audit_dead_letter.topic_id IS
    'Kafka''s id of the input topic';

COMMENT ON VIEW outbox.audit_dead_letter_reason IS
    'Dead letters by reason and state, with the age of the oldest.';
COMMENT ON COLUMN outbox.audit_dead_letter_reason.reason IS
    'why no output was made';
COMMENT ON COLUMN outbox.audit_dead_letter_reason.state IS
    'open, resolved or discarded';
COMMENT ON COLUMN outbox.audit_dead_letter_reason.letters IS
    'dead letters';
COMMENT ON COLUMN outbox.audit_dead_letter_reason.events IS
    'input events in them';
COMMENT ON COLUMN outbox.audit_dead_letter_reason.oldest IS
    'when the oldest of them was written';
COMMENT ON COLUMN outbox.audit_dead_letter_reason.newest IS
    'when the newest of them was written';

COMMENT ON VIEW outbox.audit_replay IS
    'Replays: what was sent once more on request, and how far they are.';
COMMENT ON COLUMN outbox.audit_replay.replay_id IS
    'number of the replay';
COMMENT ON COLUMN outbox.audit_replay.state IS
    'running, interrupted (nobody works on it), paused, done or cancelled';
COMMENT ON COLUMN outbox.audit_replay.began_at IS
    'when the replay was made';
COMMENT ON COLUMN outbox.audit_replay.ended_at IS
    'when the replay was done or cancelled, NULL: not yet';
COMMENT ON COLUMN outbox.audit_replay.from_batch IS
    'first batch that it covers';
COMMENT ON COLUMN outbox.audit_replay.to_batch IS
    'last batch that it covers';
COMMENT ON COLUMN outbox.audit_replay.topics IS
    'only outputs for these topics, NULL: all';
COMMENT ON COLUMN outbox.audit_replay.only_keys IS
    'only the keys in outbox.replay_key';
COMMENT ON COLUMN outbox.audit_replay.target_topic IS
    'topic that it sends to, NULL: each event''s own';
COMMENT ON COLUMN outbox.audit_replay.target_servers IS
    'bootstrap servers of the target';
COMMENT ON COLUMN outbox.audit_replay.rows_sent IS
    'rows sent so far';
COMMENT ON COLUMN outbox.audit_replay.rows_total IS
    'rows to send, counted when it was made';
COMMENT ON COLUMN outbox.audit_replay.events_sent IS
    'output events sent so far';
COMMENT ON COLUMN outbox.audit_replay.events_total IS
    'output events to send, counted when it was made';
COMMENT ON COLUMN outbox.audit_replay.rows_skipped IS
    'rows that the target refused and that were left out';
COMMENT ON COLUMN outbox.audit_replay.cursor_batch IS
    'how far it is';
COMMENT ON COLUMN outbox.audit_replay.cursor_key IS
    'how far it is in that batch, NULL: all of it';
COMMENT ON COLUMN outbox.audit_replay.reason IS
    'why it stands still or failed';
COMMENT ON COLUMN outbox.audit_replay.requested IS
    'the filter as it was given';
COMMENT ON COLUMN outbox.audit_replay.replay_uuid IS
    'header outbox-replay of what it sent';

COMMENT ON VIEW outbox.audit_replayed IS
    'Rows that a replay has sent: one row per replay, session key and batch. A replay keeps no record of each transaction, so when is'
    ' known only as between began_at and ended_at. Ask by session_key or replay_id.';
COMMENT ON COLUMN outbox.audit_replayed.session_key IS
    'key of the session''s events';
COMMENT ON COLUMN outbox.audit_replayed.batch_id IS
    'number of the ledger row (outbox.batch) that it was committed with';
COMMENT ON COLUMN outbox.audit_replayed.replay_id IS
    'number of the replay';
COMMENT ON COLUMN outbox.audit_replayed.replay_uuid IS
    'header outbox-replay of what it sent';
COMMENT ON COLUMN outbox.audit_replayed.began_at IS
    'when the replay was made';
COMMENT ON COLUMN outbox.audit_replayed.ended_at IS
    'when the replay was done or cancelled, NULL: not yet';
COMMENT ON COLUMN outbox.audit_replayed.output_events IS
    'output events of the row that the replay''s topics let through';
COMMENT ON COLUMN outbox.audit_replayed.target_topic IS
    'topic that it sends to, NULL: each event''s own';
COMMENT ON COLUMN outbox.audit_replayed.target_servers IS
    'bootstrap servers of the target';
COMMENT ON COLUMN outbox.audit_replayed.certain IS
    'false: the replay left rows out, maybe this one';

COMMENT ON VIEW outbox.audit_ledger IS
    'Breaks of the ledger: no rows when all is well. Ask by batch_id for a part.';
COMMENT ON COLUMN outbox.audit_ledger.batch_id IS
    'the batch that does not fit what is before it';
COMMENT ON COLUMN outbox.audit_ledger.problem IS
    'missing: ids left out before it; discontinuous: it does not begin where its generation''s former batch ended; offsets: end '
    'before start, safe after end or done before end; time: committed before its predecessor';
COMMENT ON COLUMN outbox.audit_ledger.generation IS
    'period in which one Spark checkpoint was in force (outbox.generation)';
COMMENT ON COLUMN outbox.audit_ledger.first_missing IS
    'first id left out';
COMMENT ON COLUMN outbox.audit_ledger.last_missing IS
    'last id left out';
COMMENT ON COLUMN outbox.audit_ledger.detail IS
    'in words';

COMMENT ON VIEW outbox.audit_reconciliation IS
    'What does not agree: no rows when all is well. Reads the whole outbox; outbox.audit_reconcile(from_batch, to_batch) does the '
    'same for a range of batches.';
COMMENT ON COLUMN outbox.audit_reconciliation.check_name IS
    'which check found it';
COMMENT ON COLUMN outbox.audit_reconciliation.severity IS
    'critical: outputs are or will be missing or there twice; error: the records about them disagree';
COMMENT ON COLUMN outbox.audit_reconciliation.epoch IS
    'lane epoch (outbox.lane_epoch)';
COMMENT ON COLUMN outbox.audit_reconciliation.lane IS
    'lane of the publisher that sends it';
COMMENT ON COLUMN outbox.audit_reconciliation.batch_id IS
    'batch that shows it, NULL: none';
COMMENT ON COLUMN outbox.audit_reconciliation.session_key IS
    'session key that shows it, NULL: none';
COMMENT ON COLUMN outbox.audit_reconciliation.detail IS
    'in words';

COMMENT ON VIEW outbox.epoch_range IS
    'Lane epochs with their first and last batch; to_batch NULL: the newest epoch.';
COMMENT ON VIEW outbox.lane_position IS
    'Where each lane of each epoch is, also those that no publisher has run yet. through_batch: the last batch of which nothing is '
    'left; last_batch: the last one that it has to deliver so far; ended: it has come to its epoch''s end; held: a living process '
    'holds its lease.';
COMMENT ON VIEW outbox.output_partition IS
    'Partitions of session_output: which batches'' rows are kept. Both bounds inclusive.';
COMMENT ON VIEW outbox.output_row IS
    'Rows of session_output with epoch, delivery state and the first delivery that carried them; skipped: only a resume passed over them.';
COMMENT ON VIEW outbox.check_rows_kept IS
    'Check: partitions of session_output that are not there, with rows that were not delivered.';
COMMENT ON VIEW outbox.check_stray_row IS
    'Check: rows whose lane their epoch does not have.';
COMMENT ON VIEW outbox.check_delivery_chain IS
    'Check: deliveries that do not continue the one before them.';
COMMENT ON VIEW outbox.check_delivery_counts IS
    'What each delivery says it sent, beside what its cursor range holds.';
COMMENT ON VIEW outbox.check_mirror IS
    'Check: lanes whose mirror is not their newest delivery, or not of this ledger.';
COMMENT ON VIEW outbox.check_parked IS
    'Check: parked rows that are gone, requeued ones whose copy is missing or differs.';
COMMENT ON FUNCTION outbox.cursor_covers(bigint, text, bigint, text, bigint, text) IS
    'Whether a row is after the first cursor and not after the second.';
COMMENT ON FUNCTION outbox.cursor_text(bigint, text) IS
    'A cursor in words.';
COMMENT ON FUNCTION outbox.check_batch_counts(bigint, bigint) IS
    'Check: batches of a range whose ledger row and rows disagree.';
COMMENT ON FUNCTION outbox.check_emitted_twice(bigint, bigint) IS
    'Check: sessions emitted more than once for a revision within a range of batches.';
COMMENT ON FUNCTION outbox.audit_reconcile(bigint, bigint) IS
    'audit_reconciliation for the batches from the first to the second, both inclusive; NULL: no bound.';
COMMENT ON FUNCTION outbox.batch_rows(bigint, bigint) IS
    'The rows of a range of batches, both inclusive.';
