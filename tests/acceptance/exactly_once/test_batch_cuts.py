"""What comes out depends on the input alone: not on where it is cut into batches, nor on the number of tasks."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from devstack.kafka import KafkaServer
from tests.support.pipeline import verdict
from tests.support.pipeline.options import Options
from tests.support.pipeline.pipeline import Pipeline

PARTITIONS = 8
WHOLE: Options = {"job": {"max_events_per_batch": 100_000, "tasks": 1, "master": "local[1]"}}
TINY: Options = {"job": {"max_events_per_batch": 150, "tasks": 2}}
WIDE: Options = {"job": {"max_events_per_batch": 1_000, "tasks": 8, "master": "local[8]"}}
# All that a row says of its outputs, but where it is and when it was written.
ROWS = """
    SELECT (to_jsonb(e) - ARRAY['batch_id', 'committed_at', 'delivery_state', 'epoch', 'delivery_seq'])::text FROM outbox.event e
    UNION ALL
    SELECT (to_jsonb(d) - ARRAY['batch_id', 'dead_letter_id', 'created_at', 'state_changed_at', 'detail'])::text FROM outbox.dead_letter d
"""


@pytest.mark.guarantee(3, 4, 17)
@pytest.mark.faults
@pytest.mark.timeout(1_800)
def test_batches_of_any_size_in_any_number_of_tasks_give_the_same_rows_and_dead_letters(
    new_database: Callable[[], str], kafka: KafkaServer, topic_prefix: str, tmp_path: Path
) -> None:
    batches: list[int] = []
    rows: list[Counter[str]] = []
    topic = ""
    for number, options in enumerate((WHOLE, TINY, WIDE)):
        folder = tmp_path / str(number)
        folder.mkdir()
        with Pipeline(
            new_database(), kafka.bootstrap_servers, topic_prefix, folder, options=options, reads=topic
        ) as one:
            if not topic:
                topic = one.input
                one.input_topic.add_partitions(PARTITIONS)
                one.feed(5, sessions=80, number=4)
            expected = one.expectation()
            one.job.start()
            one.wait_for_input(expected)
            assert one.job.terminate() == 0, one.job.tail()
            verdict.assert_outbox(one.dsn, expected)
            verdict.assert_ledger_agrees(one.dsn)
            batches.append(one.batches())
            rows.append(Counter(row for (row,) in one.ask(ROWS)))
            # Spark rounds a partition's share up to one record where it is less.
            most = options["job"]["max_events_per_batch"] + PARTITIONS
            assert one.ask("SELECT max(input_events) FROM outbox.batch")[0][0] <= most
            assert len(expected.ends) == PARTITIONS
            assert expected.sessions > 250
    assert batches[0] == 1
    assert batches[1] > 20
    assert 3 < batches[2] < batches[1]
    verdict.assert_same(rows[0], rows[1], "rows of tiny batches")
    verdict.assert_same(rows[0], rows[2], "rows of many tasks")
