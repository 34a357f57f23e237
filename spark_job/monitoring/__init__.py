"""What the job notes while it works: counters, its condition, whether it is ready."""
