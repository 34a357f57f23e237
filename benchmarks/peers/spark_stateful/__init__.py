"""The same work as a user of Spark would write it: `applyInPandasWithState` by session key, and Spark's Kafka sink."""
