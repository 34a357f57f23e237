"""The publisher: delivers every row of the outbox to Kafka exactly once (docs/architecture.md).

- relay.py: the flow of `publisher run`, on one screen. cli.py, __main__.py: the commands.

In the order of a row's way, then what people run (each folder's `__init__.py` says more):

- assignment/: which process runs which lane.
- lane/: one lane: its next rows, its loop, and when it must stop.
- delivery/: the steps of the exactly-once protocol, which lanes, replays and resumes share.
- protocol/: the protocol's values and decisions, without a server: does the history fit, what is refused, why a lane stops.
- outbox/, kafka/: the two sides.
- monitoring/, status/: what a process measures, and shows.
- resume/, replay/: stopped lanes continue; delivered outputs are sent once more.
- retention/, archive/, erasure/: old rows are dropped, kept as Parquet, erased.
- audit/, trace/: is anything missing; where is an output.
- cluster_check/: can this Kafka hold the outputs.
- console/, commands/: the pages in a browser; the commands.
"""
