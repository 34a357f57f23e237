"""One task of a batch: task.py opens the sessions of its slices (cache.py, or rebuild.py from Kafka), judges, and hands rows to the driver.

spark_job/outputs/ turns a closed session into its stored row.
"""
