"""The benchmark's transform, to a topic that the environment names: several contenders share one Kafka."""

import os
from collections.abc import Iterable
from dataclasses import replace

from benchmarks.transforms import TOPIC, twenty
from spark_job import OutputEvent, Session

TOPIC_VARIABLE = "BENCH_OUTPUT_TOPIC"
_TOPIC = os.environ.get(TOPIC_VARIABLE, TOPIC)


def twenty_routed(session: Session) -> Iterable[OutputEvent]:
    """Return the outputs of `twenty`."""
    return [replace(output, topic=_TOPIC) for output in twenty(session)]
