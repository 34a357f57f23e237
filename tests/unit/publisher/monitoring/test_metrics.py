"""Each failure of a lane is counted once, as what it is; a fence is counted as one, whoever says it."""

import psycopg
import pytest
from confluent_kafka import KafkaError, KafkaException

from publisher.monitoring import metrics
from service.errors import FencedError, UnavailableError
from tests.support.scraping import Samples


def counted() -> Samples:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in metrics.REGISTRY.collect()
        for sample in family.samples
        if sample.name.startswith("outbox_") and sample.name.endswith("_total")
    }


@pytest.mark.parametrize(
    ("error", "kind", "fence"),
    [
        (FencedError("another process has it"), "fenced", "lease"),
        (KafkaException(KafkaError(KafkaError._FENCED)), "fenced", "producer"),
        (KafkaException(KafkaError(KafkaError.PRODUCER_FENCED)), "fenced", "producer"),
        (KafkaException(KafkaError(KafkaError.INVALID_PRODUCER_EPOCH)), "fenced", "producer"),
        (KafkaException(KafkaError(KafkaError._TIMED_OUT)), "kafka", None),
        (psycopg.OperationalError("gone"), "postgres", None),
        (UnavailableError("gone"), "postgres", None),
    ],
)
def test_a_failure_is_counted_once_as_what_it_is(error: Exception, kind: str, fence: str | None) -> None:
    before = counted()
    metrics.failed(error)
    changed = {place: value - before[place] for place, value in counted().items() if value != before[place]}
    expected = {("outbox_lane_failures_total", (("kind", kind),)): 1.0}
    if fence:
        expected["outbox_fences_total", (("kind", fence),)] = 1.0
    assert changed == expected
