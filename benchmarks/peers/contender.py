"""What a benchmark asks of a pipeline that it measures: this project's two services, or a peer that does the same work.

The work: read sessions of 102 JSON events from an input topic with LogAppendTime, key by the record's key, take the type from
`$.event_type` in the value, and at a session's end send the twenty outputs of `benchmarks.transforms.twenty`, byte for byte, with the
session's key as the record's key, exactly once.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True)
class Work:
    """What to read, and where to send it."""

    bootstrap_servers: str
    input_topic: str
    output_topic: str
    """Has its partitions already."""
    folder: Path
    """Of this run alone: logs, checkpoints, state."""
    parallelism: int = 2


class RunningContender(Protocol):
    """Processes that do the work."""

    def pids(self) -> Mapping[str, Sequence[int]]:
        """{part: processes}, with all below them, of what belongs to the contender alone: what a benchmark adds up and kills.

        Kafka is not among them. Postgres is where only this contender needs it.
        """
        ...

    def check_alive(self) -> None:
        """Raise RuntimeError with the end of its log where a process has ended that should not have."""
        ...

    def kill(self, part: str) -> float:
        """SIGKILL to a part and everything below it; return the moment, seconds since 1970."""
        ...

    def start(self, part: str) -> None:
        """Start a killed part again, as an operator or a supervisor would: it recovers by its own means."""
        ...


class Contender(Protocol):
    """One way to do the work, with its settings."""

    @property
    def name(self) -> str:
        """As it stands in tables: `Flink, heap, 1 s`."""
        ...

    def running(self, work: Work) -> AbstractContextManager[RunningContender]:
        """Start it; yield it when its processes are started, warm or not. All of it is gone at the end. Raises RuntimeError."""
        ...
