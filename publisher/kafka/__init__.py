"""The Kafka side: clients, topics, fencing, and the reader of a lane's progress partition (progress_reader.py)."""
