"""The Postgres side: which outbox it is, leases, parked rows, the record of deliveries.

- identity.py: whether outbox, server, cluster and prefix are the bound ones.
- topic_ids.py: whether each output topic is still the one that was written first.
- lease.py: which process works on a lane.
- ledger.py: reads the job's ledger.
- deliveries.py: records a transaction after Kafka's commit.
- sent_offsets.py: reads the offsets of such a record.
- parked.py, parked_topics.py: rows, and missing topics whose rows are parked.
- erased.py: which sessions were erased.
- loading.py, permitted.py: how rows are read; what the login may not read.
- wakeup.py: the LISTEN that wakes lanes.
"""
