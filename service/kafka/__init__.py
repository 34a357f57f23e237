"""Shared uses of Kafka's client.

- client.py: a client for administrative requests; turns a failure of Kafka into the error that ends a process or a command.
- cluster.py: the id of the cluster that answers.
- renewable_client.py: makes a client again when it fails.
- topics.py, topic_ids.py: the existing topics, their configuration, offsets and ids.
- reading.py: the committed records between two offsets. record_headers.py: a record's headers.
- rights.py: names the right that Kafka refuses.
- host_names.py: whether the hosts of a setting exist.
- transport.py: connections that others could read, for a warning at the start.
"""
