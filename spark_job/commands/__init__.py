"""Commands of `spark-job` that read or change the outbox; most need no running job.

- init.py: a settings file and a transform to start from, of starter.py and its test starter_test.py.
- prepare.py: does in advance what every start would repeat.
- status.py, stop.py: the state of the job; its end.
- savepoint.py, restore.py: named positions; the steps of going back to one.
- fork.py: another outbox from a savepoint.
- clock.py: clock records for quiet partitions.
- decode.py: values in Confluent's wire format as JSON.
- common.py: the connection, the writer lock and progress of a command. request_client.py: a request to the running job.
"""
