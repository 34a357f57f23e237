"""An input of hundreds of partitions: nothing of the recovery is different, and nothing forgets one of them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from devstack.kafka import KafkaServer
from tests.support.pipeline.pipeline import Pipeline

PARTITIONS = 200


@pytest.fixture
def wide(database: str, kafka: KafkaServer, topic_prefix: str, tmp_path: Path) -> Iterator[Pipeline]:
    """A pipeline with many input partitions; the publisher is at work."""
    with Pipeline(
        database, kafka.bootstrap_servers, topic_prefix, tmp_path, partitions=PARTITIONS
    ) as pipeline:
        pipeline.publisher.start()
        yield pipeline


@pytest.mark.faults
def test_two_hundred_partitions_lose_and_repeat_nothing_through_kills_and_lost_caches(wide: Pipeline) -> None:
    wide.hold_open(400)
    with wide.load(91, sessions_per_second=40):
        wide.job.start()
        for cache_is_lost in (False, True, True):
            wide.more_batches(3)
            wide.crash()
            if cache_is_lost:
                wide.lose_cache()
            wide.job.start()
        wide.more_batches(3)
    wide.release()
    wide.finish()
    assert len(wide.ledger_end()) == PARTITIONS
    assert len(wide.rebuilt()) >= 2
