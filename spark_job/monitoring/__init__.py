"""What the job records while it works: counters, its condition, whether it is ready."""
