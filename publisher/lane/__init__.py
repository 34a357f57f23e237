"""Delivers one lane.

- worker.py: the loop. It opens the lane again after any failure, and decides when the lane must stop.
- lane.py: the steps of the protocol (publisher/delivery).
- reader.py, read_ahead.py: read the next rows while Kafka commits the previous ones.
- parking.py: parks rows that Kafka refuses, and rows for a missing topic.
- stray_rows.py: finds rows that no lane would deliver.
- transaction_pace.py: limits how often transactions begin.
"""
