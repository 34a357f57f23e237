-- What the owner's functions do follows from what they see, so it must be what is so now.
CREATE FUNCTION outbox.require_read_committed() RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    -- Any other transaction of the caller may have looked before somebody began to need the rows.
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'a % transaction does not see what others need by now', current_setting('transaction_isolation')
            USING ERRCODE = 'invalid_transaction_state';
    END IF;
END $$;
COMMENT ON FUNCTION outbox.require_read_committed() IS 'The first statement of every function that changes something with the owner''s rights.';

CREATE OR REPLACE FUNCTION outbox.end_retention(failure text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    UPDATE outbox.retention SET ended_at = clock_timestamp(), failed = failure;
END $$;

-- The lower half of a little-endian int8.
CREATE FUNCTION outbox.integer_at(data bytea, place integer) RETURNS integer
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN get_byte(data, place) + (get_byte(data, place + 1) << 8) + (get_byte(data, place + 2) << 16) + (get_byte(data, place + 3) << 24);
COMMENT ON FUNCTION outbox.integer_at(bytea, integer) IS 'Part of remembers().';

-- What a position remembers is OpenState.remembered of spark_job/sessions/state/open_state.py: the columns of a table of sessions, each aligned to
-- 8 bytes, and after it what the clock needs of the last record, its key included. Looked at key by key: one may be a part of another.
CREATE FUNCTION outbox.remembers(remembered bytea, key_bytes bytea) RETURNS boolean
    LANGUAGE plpgsql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    sessions integer;
    place integer;
    texts integer;
    bounds integer;
BEGIN
    IF position(key_bytes IN remembered) = 0 THEN
        RETURN false;
    END IF;
    sessions := outbox.integer_at(remembered, 0);
    -- Eight columns of 8 bytes a session, one of 1 byte, and which keys are there: all.
    bounds := 8 + 64 * sessions + 2 * ((sessions + 7) / 8 * 8);
    place := bounds + 8 * (sessions + 1);
    FOR n IN 0 .. sessions - 1 LOOP
        IF substring(remembered FROM place + outbox.integer_at(remembered, bounds + 8 * n) + 1
                     FOR outbox.integer_at(remembered, bounds + 8 * n + 8) - outbox.integer_at(remembered, bounds + 8 * n)) = key_bytes THEN
            RETURN true;
        END IF;
    END LOOP;
    place := place + (outbox.integer_at(remembered, place - 8) + 7) / 8 * 8;
    -- Two columns of hashes.
    FOR n IN 1 .. 2 LOOP
        texts := (SELECT count(*) FROM generate_series(place, place + sessions - 1) i WHERE get_byte(remembered, i) <> 0);
        place := place + (sessions + 7) / 8 * 8 + 8 * (texts + 1);
        place := place + (outbox.integer_at(remembered, place - 8) + 7) / 8 * 8;
    END LOOP;
    -- An offset for each session whose start came again.
    place := place + 8 * (SELECT count(*) FROM generate_series(8 + 40 * sessions, 8 + 41 * sessions - 1) i WHERE get_byte(remembered, i) >= 2);
    RETURN place < length(remembered)
        AND substring(remembered FROM place + 41 FOR outbox.integer_at(remembered, place + 32)) = key_bytes;
EXCEPTION WHEN data_exception THEN
    -- It has the key's bytes, and nobody can read them: a person has to look.
    RETURN true;
END $$;
COMMENT ON FUNCTION outbox.remembers(bytea, bytea) IS
    'Whether a position remembers a session key: of a session that was too large and has not ended, or of the partition''s last record.';

CREATE OR REPLACE FUNCTION outbox.erase_traces(session_key text, OUT changed bigint, OUT kept text[])
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    key_bytes CONSTANT bytea := convert_to(session_key, 'UTF8');
    said CONSTANT text := format('session key %s, for', to_json(session_key));
    batch_ids bigint[];
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
    batch_ids := ARRAY(
        SELECT p.batch_id FROM outbox.parked p
        WHERE p.session_key = erase_traces.session_key AND p.state <> 'parked'
          AND NOT EXISTS (SELECT FROM outbox.output_partition k WHERE p.batch_id BETWEEN k.from_batch AND k.to_batch));
    PERFORM outbox.erase_parked(session_key, batch_ids);
    changed := changed + cardinality(batch_ids);
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
    -- In the words of `publisher replay`. The key is a JSON string there, so no longer key has it as a part.
    UPDATE outbox.replay r SET reason = replace(r.reason, said, 'session key (erased), for') WHERE position(said IN r.reason) > 0;
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
        WHERE b.open_state::text LIKE '%"tombstones"%' AND outbox.remembers(decode(p.open ->> 'tombstones', 'base64'), key_bytes)
        UNION ALL
        SELECT 'generation', g.generation, t.topic_id, p.partition,
               CASE WHEN NOT EXISTS (SELECT FROM outbox.batch n WHERE n.generation = g.generation AND n.kind = 'stream')
                    THEN CASE WHEN g.generation = (SELECT max(n.generation) FROM outbox.generation n) THEN 'the current position'
                              ELSE 'the last position of generation ' || g.generation END END
        FROM outbox.generation g
        CROSS JOIN LATERAL jsonb_each(g.open_state) AS t (topic_id, partitions)
        CROSS JOIN LATERAL jsonb_each(t.partitions) AS p (partition, open)
        WHERE outbox.remembers(decode(p.open ->> 'tombstones', 'base64'), key_bytes)
        UNION ALL
        SELECT 'savepoint', s.savepoint_id, t.topic_id, p.partition, CASE WHEN s.deleted_at IS NULL THEN 'savepoint ' || s.name END
        FROM outbox.savepoint s
        CROSS JOIN LATERAL jsonb_each(s.open_state) AS t (topic_id, partitions)
        CROSS JOIN LATERAL jsonb_each(t.partitions) AS p (partition, open)
        WHERE outbox.remembers(decode(p.open ->> 'tombstones', 'base64'), key_bytes)
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
-- The check that drop_partition() and hold_for_erasure() had becomes the rule of all.
DO $$
DECLARE
    changing record;
BEGIN
    FOR changing IN
        SELECT pg_get_functiondef(p.oid) AS definition
        FROM pg_proc p
        WHERE p.pronamespace = 'outbox'::regnamespace AND p.prosecdef AND p.provolatile = 'v'
    LOOP
        EXECUTE replace(replace(changing.definition,
$former$    -- Any other transaction of the caller may have looked before somebody began to need the rows.
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'a % transaction does not see what others need by now', current_setting('transaction_isolation')
            USING ERRCODE = 'invalid_transaction_state';
    END IF;
$former$, ''), E'\nBEGIN\n', E'\nBEGIN\n    PERFORM outbox.require_read_committed();\n');
    END LOOP;
END $$;


-- Whoever erases learns and removes nothing of letters that are not of a key which it names. A letter without a key is found by its place alone, and
-- goes only after the job's login has discarded it: one that is open is input that made no output.
DROP FUNCTION outbox.letters_of_key(text, bigint[]);
REVOKE EXECUTE ON FUNCTION outbox.erase_letters(bigint[]) FROM outbox_eraser;
COMMENT ON FUNCTION outbox.erase_letters(bigint[]) IS 'Part of erase_letters_of_key() and erase_letter_at(): erases dead letters; returns how many. Under the writer lock.';

CREATE FUNCTION outbox.letters_of_key(session_key text, OUT letters bigint, OUT without_key bigint)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    SELECT (SELECT count(*) FROM outbox.dead_letter d WHERE d.session_key = letters_of_key.session_key),
           (SELECT count(*) FROM outbox.dead_letter d WHERE d.session_key IS NULL)
$$;
COMMENT ON FUNCTION outbox.letters_of_key(text) IS 'How many dead letters a session key has, and how many have no key at all.';

CREATE FUNCTION outbox.erase_letters_of_key(session_key text) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    PERFORM outbox.require_read_committed();
    RETURN outbox.erase_letters(ARRAY(
        SELECT d.dead_letter_id FROM outbox.dead_letter d WHERE d.session_key = erase_letters_of_key.session_key));
END $$;
COMMENT ON FUNCTION outbox.erase_letters_of_key(text) IS 'Erases the dead letters of a session key; returns how many.';

CREATE FUNCTION outbox.erase_letter_at(topic text, partition integer, first_offset bigint, OUT erased bigint, OUT still_open bigint)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    PERFORM outbox.require_read_committed();
    PERFORM outbox.lock_writer();
    SELECT outbox.erase_letters(coalesce(array_agg(d.dead_letter_id) FILTER (WHERE d.state <> 'open'), '{}')),
           count(*) FILTER (WHERE d.state = 'open')
    INTO erased, still_open
    FROM outbox.dead_letter d
    WHERE d.session_key IS NULL AND d.topic = erase_letter_at.topic AND d.partition = erase_letter_at.partition
      AND d.first_offset = erase_letter_at.first_offset;
END $$;
COMMENT ON FUNCTION outbox.erase_letter_at(text, integer, bigint) IS
    'Erases the dead letters without a session key at a place that are not open; returns how many it erased, and how many are open.';

-- Instead of the rows of the ledger, which hold the keys of sessions that were too large.
CREATE FUNCTION outbox.open_input(OUT topic_id text, OUT partition integer, OUT end_offset bigint, OUT open_from bigint) RETURNS SETOF record
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    SELECT t.topic_id, p.partition::integer, p.end_offset::bigint,
           -- Without a digest it is not known what is open.
           CASE WHEN (o.open ->> 'sessions')::bigint > 0 OR NOT o.open ? 'digest' THEN (o.open ->> 'safe')::bigint END
    FROM (SELECT n.* FROM outbox.generation n ORDER BY n.generation DESC LIMIT 1) g
    LEFT JOIN LATERAL (
        SELECT n.end_offsets, n.open_state FROM outbox.batch n
        WHERE n.generation = g.generation AND n.kind = 'stream' ORDER BY n.batch_id DESC LIMIT 1
    ) b ON true
    CROSS JOIN LATERAL jsonb_each(coalesce(b.end_offsets, g.start_offsets)) AS t (topic_id, partitions)
    CROSS JOIN LATERAL jsonb_each_text(t.partitions) AS p (partition, end_offset)
    CROSS JOIN LATERAL (SELECT coalesce(b.open_state, g.open_state) -> t.topic_id -> p.partition AS open) o
$$;
COMMENT ON FUNCTION outbox.open_input() IS
    'How far the job has read in each input partition, exclusive, and where the oldest session begins that may be open; NULL: none is.';

REVOKE ALL ON FUNCTION outbox.require_read_committed(), outbox.integer_at(bytea, integer), outbox.remembers(bytea, bytea), outbox.letters_of_key(text),
    outbox.erase_letters_of_key(text), outbox.erase_letter_at(text, integer, bigint), outbox.open_input() FROM PUBLIC;
REVOKE SELECT ON outbox.batch, outbox.generation, outbox.erased FROM outbox_eraser;
GRANT EXECUTE ON FUNCTION outbox.letters_of_key(text), outbox.erase_letters_of_key(text), outbox.erase_letter_at(text, integer, bigint),
    outbox.open_input() TO outbox_eraser;

-- Former reasons have the key as it is.
UPDATE outbox.replay
SET reason = regexp_replace(reason, '^(row_refused: the target refuses the row of batch \d+, session key) ''.*'', for itself', '\1 (not kept), for itself')
WHERE reason LIKE 'row_refused: the target refuses the row of batch %';
