"""The streaming query: its batches, their pace, and the one way in which it ends. ledger/batch_size.py decides their size.

- query.py: starts each query of a run, and ends it in numbered steps: after SIGTERM, a request, a failure or the loss of the outbox, or
  for larger batches.
- endings.py: the states of a query.
- batches.py: the steps of a batch. batch_action.py, arrow_map.py, projection_options.py: its one Spark action.
- pacing.py: the pause between two batches.
- query_status.py: reads Spark's status and times into readiness and metrics.
- query_leftovers.py: releases what py4j and Spark keep of a query that has ended.
- warm_up.py: runs the code once before real records need it.
- kafka_login.py: `[kafka] login` for Spark's client.
"""
