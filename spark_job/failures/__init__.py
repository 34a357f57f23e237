"""Explain what ended an attempt: turn an exception into an error that names the remedy. supervisor/attempts.py decides what follows.

- explain.py: this process: want of memory or descriptors, a JVM that is gone. It calls the others.
- client_errors.py: what Postgres' and Kafka's clients raise.
- spark_text.py: what Spark reports as text, the errors of tasks among it.
"""
