"""Settings that this version no longer has, and why: a file that still has one is refused with a sentence instead of a guess."""

REMOVED = {
    "job.checkpoint": "there is no checkpoint that matters any more: Postgres and Kafka hold everything. [job] cache names the folder "
    "of the open sessions, which may be lost. Remove it; the old folder can be deleted",
    "job.buckets": "nothing is shuffled any more, so there are no buckets. Remove it",
    "job.shuffle_partitions": "nothing is shuffled any more: [job] tasks bounds the tasks of a batch, the cores by default. Remove it",
    "job.trigger_ms": "[job] latency is how soon a batch may follow the one before: lowest, balanced, cheapest, or milliseconds. "
    "Remove it, and set latency instead",
    "restart.failures": "[restart] attempts bounds the restarts in succession. Remove it",
    "restart.jitter": "a tenth of each delay is random. Remove it",
    "restart.multiplier": "each delay is twice the one before, up to [restart] max_delay_s. Remove it",
    "restart.window_s": "[restart] reset_after_s ends a succession of restarts. Remove it",
    "session.max_bucket_bytes": "open sessions are bounded for each input partition: [session] max_open_bytes. Remove it",
}
"""{section.key: why, and what to do}."""
