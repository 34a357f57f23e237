"""The Kafka side: clients, topics, fencing, and what of Kafka's answers may be trusted.

- clients.py: every client, configured alike.
- topics.py, compaction.py: topics described and created; which are compacted.
- fencing.py: takes a transactional id over.
- progress_reader.py: the newest progress records.
- open_transactions.py: waits for transactions from before the fencing, and notices a topic that was made again.
- written_ends.py: recognises the answer of an old leader.
- coordinator_link.py: whether a commit may have been sent twice.
- single_flight.py: one request for all threads that need it.
"""
