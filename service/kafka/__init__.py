"""Shared uses of Kafka's client: topics, rights, records between two offsets, clients that are made again."""
