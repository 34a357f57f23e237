-- Replaces what 0013 changed, and drops what it added.
DROP FUNCTION outbox.letters_of_key(text), outbox.erase_letters_of_key(text), outbox.erase_letter_at(text, integer, bigint), outbox.open_input();
CREATE FUNCTION outbox.letters_of_key(session_key text, letter_ids bigint[])
RETURNS TABLE (dead_letter_id bigint, is_named boolean)
    LANGUAGE sql STABLE SECURITY DEFINER ROWS 10
    SET search_path TO 'pg_catalog', 'pg_temp'
    -- A record whose key cannot be read may name it all the same.
    AS $$
    SELECT d.dead_letter_id, d.session_key IS NOT NULL OR d.dead_letter_id = ANY (letter_ids)
    FROM outbox.dead_letter d
    WHERE d.session_key = letters_of_key.session_key
       OR (d.session_key IS NULL
           AND (d.dead_letter_id = ANY (letter_ids)
                OR EXISTS (SELECT FROM unnest(d.event_values) v WHERE position(convert_to(letters_of_key.session_key, 'UTF8') IN v) > 0)
                OR position(letters_of_key.session_key IN d.detail) > 0))
    ORDER BY d.dead_letter_id
$$;
COMMENT ON FUNCTION outbox.letters_of_key(text, bigint[]) IS
    'Dead letters of a session key; is_named false: one without a key whose events hold its bytes.';
CREATE OR REPLACE FUNCTION outbox.erase_traces(session_key text, OUT changed bigint, OUT kept text[])
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    key_bytes CONSTANT bytea := convert_to(session_key, 'UTF8');
    found record;
    step bigint;
BEGIN
    changed := 0;
    kept := '{}';
    PERFORM outbox.hold_for_erasure();
    PERFORM outbox.lock_writer();
    DELETE FROM outbox.replay_key k WHERE k.session_key = erase_traces.session_key;
    GET DIAGNOSTICS step = ROW_COUNT;
    changed := changed + step;
    -- Where retention has dropped the rows, a cursor has nothing left to tell apart within the batch.
    PERFORM outbox.erase_parked(session_key, ARRAY(
        SELECT p.batch_id FROM outbox.parked p
        WHERE p.session_key = erase_traces.session_key AND p.state <> 'parked'
          AND NOT EXISTS (SELECT FROM outbox.output_partition k WHERE p.batch_id BETWEEN k.from_batch AND k.to_batch)));
    UPDATE outbox.delivery d SET after_key = ''
    WHERE d.after_key = session_key AND NOT EXISTS (SELECT FROM outbox.output_partition k WHERE d.after_batch BETWEEN k.from_batch AND k.to_batch);
    GET DIAGNOSTICS step = ROW_COUNT;
    changed := changed + step;
    UPDATE outbox.delivery d SET to_key = ''
    WHERE d.to_key = session_key AND NOT EXISTS (SELECT FROM outbox.output_partition k WHERE d.to_batch BETWEEN k.from_batch AND k.to_batch)
      AND d.to_batch < (SELECT coalesce(max(l.cursor_batch), 0) FROM outbox.lane l WHERE l.epoch = d.epoch AND l.lane = d.lane);
    GET DIAGNOSTICS step = ROW_COUNT;
    changed := changed + step;
    UPDATE outbox.replay r SET cursor_key = ''
    WHERE r.cursor_key = session_key AND r.state IN ('done', 'cancelled')
      AND NOT EXISTS (SELECT FROM outbox.output_partition k WHERE r.cursor_batch BETWEEN k.from_batch AND k.to_batch);
    GET DIAGNOSTICS step = ROW_COUNT;
    changed := changed + step;
    -- In the words of `publisher replay`: a reason holds no other key.
    UPDATE outbox.replay r SET reason = replace(r.reason, format('session key ''%s'', for', session_key), 'session key (erased), for')
    WHERE position(format('session key ''%s'', for', session_key) IN r.reason) > 0;
    GET DIAGNOSTICS step = ROW_COUNT;
    changed := changed + step;
    -- A session that was too large and has not ended is remembered by its key, in base64. Where nothing starts from a position again, that goes.
    FOR found IN
        SELECT 'batch' AS relation, b.batch_id AS id, t.topic_id, p.partition,
               CASE WHEN b.batch_id = newest.batch_id THEN
                   CASE WHEN b.generation = (SELECT max(g.generation) FROM outbox.generation g) THEN 'the current position'
                        ELSE 'the last position of generation ' || b.generation END END AS needed
        FROM outbox.batch b
        CROSS JOIN LATERAL (SELECT max(n.batch_id) AS batch_id FROM outbox.batch n WHERE n.generation = b.generation AND n.kind = 'stream') newest
        CROSS JOIN LATERAL jsonb_each(b.open_state) AS t (topic_id, partitions)
        CROSS JOIN LATERAL jsonb_each(t.partitions) AS p (partition, open)
        WHERE b.open_state::text LIKE '%"tombstones"%' AND position(key_bytes IN decode(p.open ->> 'tombstones', 'base64')) > 0
        UNION ALL
        SELECT 'generation', g.generation, t.topic_id, p.partition,
               CASE WHEN NOT EXISTS (SELECT FROM outbox.batch n WHERE n.generation = g.generation AND n.kind = 'stream')
                    THEN CASE WHEN g.generation = (SELECT max(n.generation) FROM outbox.generation n) THEN 'the current position'
                              ELSE 'the last position of generation ' || g.generation END END
        FROM outbox.generation g
        CROSS JOIN LATERAL jsonb_each(g.open_state) AS t (topic_id, partitions)
        CROSS JOIN LATERAL jsonb_each(t.partitions) AS p (partition, open)
        WHERE position(key_bytes IN decode(p.open ->> 'tombstones', 'base64')) > 0
        UNION ALL
        SELECT 'savepoint', s.savepoint_id, t.topic_id, p.partition, CASE WHEN s.deleted_at IS NULL THEN 'savepoint ' || s.name END
        FROM outbox.savepoint s
        CROSS JOIN LATERAL jsonb_each(s.open_state) AS t (topic_id, partitions)
        CROSS JOIN LATERAL jsonb_each(t.partitions) AS p (partition, open)
        WHERE position(key_bytes IN decode(p.open ->> 'tombstones', 'base64')) > 0
    LOOP
        changed := changed + (found.needed IS NULL)::integer;
        IF found.needed IS NOT NULL THEN
            kept := kept || found.needed;
        ELSIF found.relation = 'batch' THEN
            UPDATE outbox.batch b SET open_state = b.open_state #- ARRAY[found.topic_id, found.partition, 'tombstones'] WHERE b.batch_id = found.id;
        ELSIF found.relation = 'generation' THEN
            UPDATE outbox.generation g SET open_state = g.open_state #- ARRAY[found.topic_id, found.partition, 'tombstones'] WHERE g.generation = found.id;
        ELSE
            UPDATE outbox.savepoint s SET open_state = s.open_state #- ARRAY[found.topic_id, found.partition, 'tombstones'] WHERE s.savepoint_id = found.id;
        END IF;
    END LOOP;
    kept := ARRAY(SELECT DISTINCT k FROM unnest(kept) k ORDER BY k);
END $$;
DROP FUNCTION outbox.remembers(bytea, bytea), outbox.integer_at(bytea, integer);
COMMENT ON FUNCTION outbox.erase_letters(bigint[]) IS 'Erases dead letters; returns how many. Under the writer lock.';
REVOKE ALL ON FUNCTION outbox.letters_of_key(text, bigint[]) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION outbox.letters_of_key(text, bigint[]), outbox.erase_letters(bigint[]) TO outbox_eraser;
GRANT SELECT ON outbox.batch, outbox.generation, outbox.erased TO outbox_eraser;

DO $$
DECLARE
    changed record;
BEGIN
    FOR changed IN
        SELECT p.proname, pg_get_functiondef(p.oid) AS definition
        FROM pg_proc p
        WHERE p.pronamespace = 'outbox'::regnamespace AND p.prosecdef AND p.provolatile = 'v'
    LOOP
        EXECUTE replace(changed.definition, E'\n    PERFORM outbox.require_read_committed();\n', E'\n' || CASE
            WHEN changed.proname IN ('drop_partition', 'hold_for_erasure') THEN
$check$    -- Any other transaction of the caller may have looked before somebody began to need the rows.
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'a % transaction does not see what others need by now', current_setting('transaction_isolation')
            USING ERRCODE = 'invalid_transaction_state';
    END IF;
$check$     ELSE '' END);
    END LOOP;
END $$;
DROP FUNCTION outbox.require_read_committed();

CREATE OR REPLACE FUNCTION outbox.end_retention(failure text) RETURNS void
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
UPDATE outbox.retention SET ended_at = clock_timestamp(), failed = failure
$$;
