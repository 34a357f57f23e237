"""Sends delivered outputs once more on request, exactly once: filters select them, a target receives them, beside the lanes.

`publisher erase` deletes a row only while no replay that needs it holds a lease or has its cursor at it (erasure/erase.py,
`outbox.rows_of_key`); a replay confirms its lease before each Kafka commit (delivery.py).
"""
