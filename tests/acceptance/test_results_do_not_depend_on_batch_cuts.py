"""What comes out depends on the input alone, not on where Spark cuts it into batches."""

from collections.abc import Callable
from pathlib import Path

import pytest

from devstack.kafka import KafkaServer
from tests.acceptance import verdict
from tests.acceptance.options import Options
from tests.acceptance.pipeline import Pipeline

TINY, LARGE = 150, 100_000
PARTITIONS = 3


@pytest.mark.faults
def test_tiny_and_large_batches_give_the_same_outputs_and_dead_letters(
    new_database: Callable[[], str], kafka: KafkaServer, topic_prefix: str, tmp_path: Path
) -> None:
    batches: dict[int, int] = {}
    for size in (LARGE, TINY):
        folder = tmp_path / str(size)
        folder.mkdir()
        options: Options = {"job": {"max_events_per_batch": size, "trigger_ms": 0}}
        with Pipeline(new_database(), kafka.bootstrap_servers, topic_prefix, folder, options=options) as one:
            if not batches:
                one.feed(5, sessions=80, number=4)
            expected = one.expectation()
            one.job.start()
            one.wait_for_input(expected)
            assert one.job.terminate() == 0, one.job.tail()
            verdict.assert_outbox(one.dsn, expected)
            verdict.assert_ledger_agrees(one.dsn)
            batches[size] = one.batches()
            # Spark rounds a partition's share up to one record where it is less.
            assert one.ask("SELECT max(input_events) FROM outbox.batch")[0][0] <= size + PARTITIONS
            assert expected.sessions > 250
    assert batches[LARGE] == 1
    assert batches[TINY] > 20
