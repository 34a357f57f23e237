"""What the job and the publisher must agree on. Neither owns it.

- positions.py: a position in Kafka, and the header `outbox-id`, which names the position of a session's last event.
- session_keys.py: the longest session key, and the hash that gives its lane.
- progress.py, cursor.py: the publisher's progress records in Kafka, and the position in the outbox that they hold.
- output_topics.py: the topics that outputs may go to.
- header_values.py: how a row stores the values of headers.
"""
