"""The publisher: delivers every row of the outbox to Kafka exactly once (docs/architecture.md).

- relay.py: the flow of `publisher run`, on one screen. cli.py, __main__.py: the command line.

First the folders that a row passes, in this order, then what people run (each folder's `__init__.py` says more):

- assignment/: decides which process runs which lane.
- lane/: one lane: its next rows, its loop, and when it must stop.
- delivery/: the steps of the exactly-once protocol, which lanes, replays and resumes share.
- protocol/: the protocol's values and decisions, without a server: whether the histories agree, what is refused, why a lane stops.
- outbox/, kafka/: the two sides.
- monitoring/, status/: what a process measures, and what it shows.
- resume/, replay/: let stopped lanes continue; send delivered outputs once more.
- retention/, archive/, erasure/: drop old rows, keep them as Parquet, erase them.
- audit/, trace/: whether anything is missing; where an output is.
- cluster_check/: whether this Kafka can hold the outputs.
- console/, commands/: the pages in a browser; the commands.
"""
