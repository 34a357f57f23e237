"""Transforms for measuring: they cost as little as a transform can, so that the pipeline is what is measured.

The suite loads them by this name from the folder of another checkout too (`--baseline`).
"""

import time
from collections.abc import Iterable

from spark_job import OutputEvent, Session

OUTPUTS = 20
OUTPUT_BYTES = 178
TOPIC = "bench.out"


def twenty(session: Session) -> Iterable[OutputEvent]:
    """Return twenty outputs of 178 bytes. Each begins with the session's end time in milliseconds and its number."""
    ended = int(session.ended_at.timestamp() * 1000)
    padding = b"x" * (OUTPUT_BYTES - 17)
    return [OutputEvent(TOPIC, b"%013d %02d " % (ended, n) + padding) for n in range(OUTPUTS)]


def twenty_in_1_ms(session: Session) -> Iterable[OutputEvent]:
    """The same outputs, for which it works a millisecond."""
    _work(0.001)
    return twenty(session)


def twenty_in_10_ms(session: Session) -> Iterable[OutputEvent]:
    """The same outputs, for which it works ten milliseconds."""
    _work(0.01)
    return twenty(session)


def _work(seconds: float) -> None:
    """Keep a core busy for so long."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass
