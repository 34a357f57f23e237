"""What `benchmarks.suite` does not measure of the whole path: an idle job, many partitions in small batches, rebuilds."""
