"""The job as a process: how it stops, what it refuses, who may write, and what a crash around its commit does."""

import json

import pytest

from tests.support.pipeline.pipeline import Pipeline


@pytest.mark.guarantee(22, 121)
@pytest.mark.faults
def test_a_crash_on_either_side_of_the_commit_and_a_stop_lose_and_repeat_nothing(pipeline: Pipeline) -> None:
    job = pipeline.job
    pipeline.publisher.start()
    with pipeline.load(1, sessions_per_second=15):
        job.start(**pipeline.armed)
        pipeline.wait_until(lambda: pipeline.batches() >= 2, "two batches", alive=(job,))
        with pipeline.held_at("sink.after_ledger"):
            batches = pipeline.batches()
            pipeline.crash()
        assert pipeline.batches() == batches

        job.start(**pipeline.armed)
        with pipeline.held_at("sink.after_commit", hit=2):
            batches = pipeline.batches()
            pipeline.crash()
        assert pipeline.batches() == batches

        job.start()
        pipeline.wait_until(lambda: pipeline.batches() >= batches + 3, "more batches", alive=(job,))
        assert job.terminate() == 0, job.tail()
        assert pipeline.owner() is None

        batches = pipeline.batches()
        job.start()
        pipeline.wait_until(lambda: pipeline.batches() >= batches + 2, "more batches", alive=(job,))
    expected = pipeline.expectation()
    pipeline.complete(expected)
    pipeline.stop()
    pipeline.assert_exactly_once(expected)
    assert pipeline.restored() == ["fresh", "position", "position", "position"]
    assert pipeline.generations() == [(1, "first", 0)]


@pytest.mark.guarantee(26, 57, 175)
@pytest.mark.faults
def test_only_the_run_that_owns_the_outbox_writes(pipeline: Pipeline) -> None:
    first, second, third = pipeline.job, pipeline.another_job(), pipeline.another_job()
    pipeline.publisher.start()
    with pipeline.load(2, sessions_per_second=15):
        first.start()
        pipeline.wait_until(lambda: pipeline.batches() >= 1, "a batch", alive=(first,))
        second.start()
        assert second.wait() == 4, second.tail()
        assert "--take-over" in second.log()
        assert pipeline.owns(first)
        batches = pipeline.batches()
        pipeline.wait_until(lambda: pipeline.batches() > batches, "another batch", alive=(first,))

        second.start("--take-over")
        pipeline.wait_until(lambda: pipeline.owns(second), "the takeover", alive=(second,))
        assert first.wait() == 4, first.tail()
        batches = pipeline.batches()
        pipeline.wait_until(lambda: pipeline.batches() > batches, "another batch", alive=(second,))

        pipeline.job = second
        with pipeline.held_up_batch():
            second.pause()
        # The process stands still in the middle of its transaction, and holds the writer lock.
        pipeline.wait_for_dead_owner()
        third.start()
        pipeline.wait_until(lambda: pipeline.owns(third), "the takeover", alive=(third,))
        pipeline.job = third
        batches = pipeline.batches()
        pipeline.wait_until(lambda: pipeline.batches() > batches, "another batch", alive=(third,))
        second.resume()
        assert second.wait() == 4, second.tail()
    expected = pipeline.expectation()
    pipeline.complete(expected)
    pipeline.stop()
    pipeline.assert_exactly_once(expected)


@pytest.mark.guarantee(15, 116)
@pytest.mark.faults
def test_a_failing_transform_stops_the_job_where_asked_and_leaves_a_dead_letter_otherwise(
    pipeline: Pipeline,
) -> None:
    pipeline.feed(3, sessions=200, number=2)
    expected = pipeline.expectation()
    assert [letter for letter in expected.letters if letter.reason == "transform_failed"]
    pipeline.job.start(OUTBOX_TRANSFORM__ON_ERROR="stop", OUTBOX_JOB__MAX_EVENTS_PER_BATCH="100000")
    assert pipeline.job.wait() == 11, pipeline.job.tail()
    assert pipeline.restarts() == []
    assert '[transform] on_error is "stop"' in pipeline.job.log()
    assert pipeline.batches() == 0
    assert pipeline.ask("SELECT reason FROM outbox.dead_letter") == []

    pipeline.publisher.start()
    pipeline.job.start()
    pipeline.complete(expected)
    pipeline.stop()
    pipeline.assert_exactly_once(expected)


@pytest.mark.guarantee(84)
@pytest.mark.parametrize(
    ("setting", "value", "exit_code", "explanation"),
    [
        ("OUTBOX_SOURCE__TOPICS", json.dumps(["no-such-topic"]), 2, "'no-such-topic' does not exist"),
        ("OUTBOX_TRANSFORM__FUNCTION", "no_such_module:f", 2, "importing no_such_module failed"),
        ("OUTBOX_POSTGRES__DSN", "postgresql://127.0.0.1:1/outbox", 6, "127.0.0.1:1/outbox cannot be used"),
    ],
)
def test_a_start_that_cannot_succeed_says_so_and_writes_nothing(
    pipeline: Pipeline, setting: str, value: str, exit_code: int, explanation: str
) -> None:
    before = pipeline.written()
    pipeline.job.start(**{setting: value}, OUTBOX_RESTART__STRATEGY="none")
    assert pipeline.job.wait() == exit_code, pipeline.job.tail()
    assert explanation in pipeline.job.log()
    assert "Traceback" not in pipeline.job.log()
    assert pipeline.written() == before
    assert pipeline.owner() is None
