"""The whole path, what `benchmarks.suite` does not measure: an idle job, many partitions, rebuilds; this checkout's and another one's in turn."""
