"""The checkpoint is disposable: whatever happens to its directory, each output arrives exactly once."""

import pytest

from tests.acceptance.pipeline import Pipeline


@pytest.mark.timeout(900)
def test_deleting_the_checkpoint_twice_in_a_row_under_load_loses_and_repeats_nothing(
    pipeline: Pipeline,
) -> None:
    job = pipeline.job
    pipeline.publisher.start()
    with pipeline.load(11, sessions_per_second=60):
        job.start()
        pipeline.wait_until(lambda: pipeline.batches() >= 4, "four batches", alive=(job,))
        job.crash()
        pipeline.lose_checkpoint()

        # Batches so small that the second loss comes before the first one's high water.
        job.start(OUTBOX_JOB__MAX_EVENTS_PER_BATCH="100")
        pipeline.wait_until(
            lambda: pipeline.position().stored >= 0, "a batch of the new generation", alive=(job,)
        )
        job.crash()
        assert pipeline.ask(
            "SELECT done_offsets = end_offsets FROM outbox.batch ORDER BY batch_id DESC LIMIT 1"
        ) == [(False,)]
        pipeline.lose_checkpoint()

        job.start()
        batches = pipeline.batches()
        pipeline.wait_until(lambda: pipeline.batches() >= batches + 4, "more batches", alive=(job,))
    expected = pipeline.expectation()
    pipeline.complete(expected)
    pipeline.stop()
    pipeline.assert_exactly_once(expected)
    assert pipeline.generations() == [(1, "first", 0), (2, "checkpoint_lost", 0), (3, "checkpoint_lost", 0)]
    assert pipeline.restored() == ["fresh", "new_generation", "new_generation"]
