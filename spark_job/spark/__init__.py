"""Spark itself: its session, jars, JVM, query and failures."""
