"""One task of a batch: task.py opens the sessions of its slices (cache.py, or rebuild.py from Kafka), judges, and hands rows to the driver.

What becomes of a closed session is in spark_job/outputs/.
"""
