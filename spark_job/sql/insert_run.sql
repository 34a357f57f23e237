INSERT INTO outbox.run (run_id, generation, restored, spark_batch, resumes_at, high_water, read_again, explanation, attempt,
    transform_fingerprint, host, pid, system_identifier, timeline)
SELECT %(run_id)s, %(generation)s, %(restored)s, %(spark_batch)s, %(resumes_at)s, %(high_water)s, %(read_again)s, %(explanation)s, %(attempt)s,
    %(transform_fingerprint)s, %(host)s, %(pid)s, s.system_identifier, s.timeline
FROM outbox.server_identity() s
