"""The commands of `spark-job`, except `run` (cli.py), `try` and `diff` (trial/) and `dead-letters` (dead_letters/). None needs a
running job.

- init.py: writes a settings file, a transform to start from (starter.py) and its test (starter_test.py).
- prepare.py: does in advance what every start would repeat.
- status.py: shows the state of the job. stop.py: ends the job.
- savepoint.py: named positions. restore.py: the steps of going back to a savepoint.
- fork.py: another outbox from a savepoint.
- clock.py: clock records for quiet partitions.
- decode.py: values in Confluent's wire format as JSON.
- common.py: the connection, the writer lock and progress of a command. request_client.py: a request to the running job.
"""
