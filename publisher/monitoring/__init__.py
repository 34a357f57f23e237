"""What a publisher notes while it works: counters, the health of its lanes, a log of deliveries, whether it is ready."""
