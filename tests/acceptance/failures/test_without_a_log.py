"""A job that can write no line of its log commits, and ends in order, as any other."""

import pytest

from tests.support.pipeline.pipeline import Pipeline


@pytest.mark.guarantee(121)
@pytest.mark.faults
def test_a_job_whose_log_is_on_a_full_disk_commits_everything_and_ends_in_order(pipeline: Pipeline) -> None:
    # What its JVM says goes there, too.
    pipeline.job.launcher = ("/bin/sh", "-c", 'exec "$@" >/dev/full 2>&1', "sh", *pipeline.job.launcher)
    pipeline.publisher.start()
    pipeline.feed(27, sessions=60, number=2)
    pipeline.job.start()
    assert pipeline.finish().sessions > 60
    assert "batch_committed" not in pipeline.job.log()
