"""The Kafka side: clients, topics, fencing, and which of Kafka's answers can be trusted.

- clients.py: makes every client, all configured alike.
- topics.py, compaction.py: describe and create topics; tell which are compacted.
- fencing.py: takes a transactional id over.
- progress_reader.py: reads the newest progress records.
- open_transactions.py: waits for transactions from before the fencing, and detects a topic that was deleted and created again.
- written_ends.py: recognises the answer of an old leader.
- coordinator_link.py: tells whether a commit may have been sent twice.
- single_flight.py: one request for all threads that need it.
"""
