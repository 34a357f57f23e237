"""Delivers one lane.

- worker.py: the loop. It opens the lane again after any failure, and decides when it must stop.
- lane.py: the steps of the protocol (publisher/delivery).
- reader.py, read_ahead.py: the next rows, read while Kafka commits the ones before.
- parking.py: parks rows that Kafka refuses.
- stray_rows.py: rows that no lane would deliver.
- transaction_pace.py: how often transactions begin.
"""
