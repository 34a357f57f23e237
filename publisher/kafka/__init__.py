"""The Kafka side: clients, topics, fencing, and what a lane's progress partition says (progress_reader.py)."""
