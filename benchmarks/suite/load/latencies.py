"""How late outputs are. Pure.

A session's clock begins when the broker had its end event, and ends when a `read_committed` consumer had its last output. A record's own
timestamp is not to be trusted with that: a producer may send it early. So the record counts from its timestamp or from the broker's
acknowledgement, whichever came first; where the broker stamps the records itself (LogAppendTime), that is the moment of the append.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SentEnd:
    """An end event in Kafka. Seconds since 1970."""

    stamp_s: float
    """The record's timestamp."""
    acked_s: float
    """When the producer knew that the broker has it."""

    @property
    def at_broker_s(self) -> float:
        """When the broker had it: never later than its acknowledgement."""
        return min(self.stamp_s, self.acked_s)


@dataclass(frozen=True, slots=True)
class Latencies:
    """Of the sessions that ended within a window, in seconds. A session that never came is infinitely late."""

    sessions: int
    missing: int
    p50: float
    p90: float
    p99: float
    p999: float
    greatest: float


def latencies(
    sent: Mapping[bytes, SentEnd], received: Mapping[bytes, float], window: tuple[float, float]
) -> Latencies:
    """Return the latencies of the sessions whose end reached the broker in `window` (seconds since 1970, end exclusive).

    `received`: when the last output of each session came. Raises ValueError where no session ended in the window, and where one was
    received before the broker had it: then two clocks are compared.
    """
    begin, end = window
    late = []
    for key, one in sent.items():
        if begin <= one.at_broker_s < end:
            seconds = received.get(key, math.inf) - one.at_broker_s
            if seconds < 0:
                raise ValueError(f"session {key!r} was received {-seconds:.3f} s before Kafka had its end")
            late.append(seconds)
    if not late:
        raise ValueError("no session ended in the window that is measured")
    late.sort()
    return Latencies(
        sessions=len(late),
        missing=sum(map(math.isinf, late)),
        p50=percentile(late, 50),
        p90=percentile(late, 90),
        p99=percentile(late, 99),
        p999=percentile(late, 99.9),
        greatest=late[-1],
    )


def percentile(ascending: list[float], percent: float) -> float:
    """Return the smallest value that is not below `percent` % of them (the nearest rank)."""
    # Rounded, because 1,000 x 99.9 / 100 is a little more than 999 in binary.
    rank = math.ceil(round(len(ascending) * percent / 100, 9))
    return ascending[max(0, rank - 1)]


def first_after(
    moment_s: float, sent: Mapping[bytes, SentEnd], received: Mapping[bytes, float]
) -> float | None:
    """Return when the first session was received whose end reached the broker after `moment_s`; None where none was."""
    came = [received[key] for key, one in sent.items() if one.at_broker_s > moment_s and key in received]
    return min(came, default=None)
