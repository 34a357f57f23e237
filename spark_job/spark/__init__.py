"""Spark itself: its session, its jars and its JVM."""
