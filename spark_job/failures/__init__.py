"""Explain what ended an attempt: turn an exception into an error that names the remedy. supervisor/attempts.py decides what follows.

- explain.py: failures of this process: no memory or descriptors left, a JVM that is gone. It calls the other modules.
- client_errors.py: what Postgres' and Kafka's clients raise.
- spark_text.py: what Spark reports as text, errors of tasks included.
"""
