"""Counters, the health of the lanes, the log of deliveries, and readiness of a running publisher."""
