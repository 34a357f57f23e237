"""What job and publisher must agree on and neither owns.

- places.py: the header `outbox-id`, which the publisher makes from a row's topic id, partition, end offset and index.
- session_keys.py: the longest session key, and the hash that gives its lane.
- progress.py, cursor.py: the publisher's progress records in Kafka, and the position in the outbox that they hold.
- output_topics.py: the topics that outputs may go to.
- header_values.py: how a row stores the values of headers.
"""
