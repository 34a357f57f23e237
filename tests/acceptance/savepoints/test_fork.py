"""An exported savepoint begins another outbox: two pipelines side by side on one input tell the same story from there on."""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from devstack.kafka import KafkaServer
from tests.support.pipeline import verdict
from tests.support.pipeline.expectation import Share
from tests.support.pipeline.pipeline import Pipeline
from tests.support.pipeline.transforms import GREEN, green

NewDatabase = Callable[[], str]


@pytest.fixture
def twin(
    pipeline: Pipeline, new_database: NewDatabase, kafka: KafkaServer, tmp_path: Path
) -> Iterator[Pipeline]:
    """Another pipeline on the same input: a database, topics and a transform of its own."""
    folder = tmp_path / "twin"
    folder.mkdir()
    with Pipeline(
        new_database(),
        kafka.bootstrap_servers,
        pipeline.prefix + GREEN,
        folder,
        options={"transform": {"function": "tests.support.pipeline.transforms:green"}},
        reads=pipeline.input,
    ) as made:
        yield made


@pytest.mark.guarantee(91, 140)
def test_a_fork_continues_beside_the_first_pipeline_and_both_agree_session_by_session(
    pipeline: Pipeline, twin: Pipeline, new_database: NewDatabase, tmp_path: Path
) -> None:
    file = tmp_path / "savepoint.json"
    pipeline.publisher.start()
    with pipeline.load(91, sessions_per_second=15):
        pipeline.job.start()
        pipeline.more_batches(3)
        made = pipeline.command_json("savepoint", "create", "split")
        pipeline.command("savepoint", "export", "split", "--output", str(file))
        assert made["open_sessions"] > 0
        pipeline.more_batches(1)
        forked = twin.command_json("fork", str(file))
        assert (forked["reason"], forked["resumes_at"]) == ("fork", made["end_offsets"])
        twin.publisher.start()
        twin.job.start()
        twin.more_batches(3)
        pipeline.more_batches(3)
    pipeline.finish()

    # What the twin has is what the first one has of the batches after the savepoint.
    ((records, duplicates),) = pipeline.ask(
        "SELECT sum(input_events), sum(duplicate_events) FROM outbox.batch WHERE batch_id > %s", made["batch"]
    )
    (places,) = made["end_offsets"].values()
    expected = twin.expectation(Share(green, floor={int(p): offset for p, offset in places.items()}))
    twin.complete(expected)
    twin.stop()
    twin.assert_exactly_once(replace(expected, records=int(records), duplicates=int(duplicates)))
    assert twin.restored() == ["savepoint"]
    assert sum(twin.rebuilt()) > 0
    verdict.assert_same(after(pipeline, made["batch"]), after(twin, 0), "sessions of the two pipelines")

    refusals(pipeline, twin, new_database, file)


def after(pipeline: Pipeline, batch: int) -> Counter[str]:
    """What the batches after this one hold, by session: the outputs without the colour of their topic."""
    rows = pipeline.ask(
        "SELECT outbox_id, session_key, replace(topic, %s, ''), key, value, headers FROM outbox.event WHERE batch_id > %s",
        GREEN,
        batch,
    )
    letters = pipeline.ask(
        "SELECT topic_id, partition, first_offset, closing_offset, reason, event_offsets FROM outbox.dead_letter WHERE batch_id > %s",
        batch,
    )
    return Counter(str(row) for row in (*rows, *letters))


def refusals(pipeline: Pipeline, twin: Pipeline, new_database: NewDatabase, file: Path) -> None:
    """Nothing is begun where the file, the outbox, the input or the settings do not fit."""
    assert "this outbox is not empty" in twin.command("fork", str(file), code=2)
    empty = {"OUTBOX_POSTGRES__DSN": new_database()}
    changed = file.with_name("changed.json")
    changed.write_text(file.read_text("utf-8").replace('"split"', '"other"'), "utf-8")
    assert "is not as it was written: its checksum is" in twin.command("fork", str(changed), code=2, **empty)
    topics = json.dumps([pipeline.outputs[0]])
    said = twin.command("fork", str(file), code=2, **empty, OUTBOX_SOURCE__TOPICS=topics)
    assert f"[source] topics lacks {pipeline.input}" in said
    said = twin.command("fork", str(file), code=5, **empty, OUTBOX_SESSION__TIMEOUT_S="6")
    assert f"spark-job fork {file} --accept-changed-assembly" in said
    pipeline.input_topic.delete_records(pipeline.input_topic.readable_ends())
    said = twin.command("fork", str(file), code=5, **empty)
    assert "Kafka has deleted input that is still needed" in said
    assert f"spark-job fork {file} --accept-data-loss" in said
    pipeline.input_topic.recreate()
    assert "it was created again, or this is another Kafka cluster" in twin.command(
        "fork", str(file), code=2, **empty
    )
    assert twin.command("fork", str(file.with_name("none.json")), code=2, **empty)
