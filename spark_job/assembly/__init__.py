"""One task of a batch, on an executor. spark_job/outputs/ turns each session that the task closes into a stored row.

- slices.py: what the driver sends to a task.
- task.py: opens the sessions of its slices, judges the new records, and returns rows. Refuses to run other code than the run's.
- task_errors.py: no exception that leaves a task quotes an event.
- code_fingerprint.py: identifies the job's code; outputs/transform.py identifies the transform's.
- record_readers.py: where a task reads its records.
- cache.py, known_files.py: the open sessions on the executor's disk; files that need no second check.
- rebuild.py: reads the open sessions again from Kafka and compares their digest.
- schemas.py, refused_ids.py: schemas for the records of a piece; verdicts on schema ids.
- rows.py, letters.py: what a task returns; its dead letters.
"""
