"""The Postgres side: the outbox's identity, leases, parked rows, and the record of deliveries.

- identity.py: checks that outbox, server, cluster and prefix are the bound ones.
- topic_ids.py: checks that no output topic was replaced since the first write to it.
- lease.py: which process works on a lane.
- ledger.py: reads the job's ledger.
- deliveries.py: records a transaction after Kafka's commit.
- sent_offsets.py: reads the offsets in that record.
- parked.py, parked_topics.py: parked rows, and missing topics whose rows are parked.
- erased.py: which sessions were erased.
- loading.py, permitted.py: how rows are read; what to return when the login may not read.
- wakeup.py: the LISTEN that wakes lanes.
"""
