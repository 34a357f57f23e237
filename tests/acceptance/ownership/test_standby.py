"""A hot standby continues where the owner was killed, and loses the outbox without ending."""

import re

import pytest

from tests.support.pipeline.pipeline import Pipeline
from tests.support.processes.service import Service

PATIENCE_S = 300.0
READY = re.compile(r"standby_ready\b")


@pytest.mark.guarantee(23)
@pytest.mark.timeout(1_200)
def test_a_standby_continues_in_the_killed_owners_place_and_waits_again_where_another_one_takes_the_outbox(
    pipeline: Pipeline,
) -> None:
    pipeline.publisher.start()
    with pipeline.load(71, sessions_per_second=10):
        pipeline.job.start("--standby")
        pipeline.more_batches(2)
        owner, standby = pipeline.job, stand_by(pipeline, pipeline.another_job())
        standby.started("java").kill()
        pipeline.wait_until(
            lambda: "spark_discarded" in standby.log(), "a standby that replaces its JVM", alive=(standby,)
        )
        owner.crash()
        pipeline.job = standby
        owns(pipeline, standby)
        pipeline.more_batches(2)
        # Nobody has to be killed: who is stopped, or fenced by force, makes room as well.
        forced = pipeline.another_job()
        fenced, pipeline.job = pipeline.job, forced
        readied = len(READY.findall(fenced.log()))
        forced.start("--take-over")
        owns(pipeline, forced)
        wait_for_standby(pipeline, fenced, times=readied + 1)
        # It starts Spark for longer than an owner may be without heartbeat here, and nobody takes it for dead.
        pipeline.more_batches(2)
        assert pipeline.owns(forced)
        assert forced.terminate() == 0, forced.tail()
        pipeline.job = fenced
        owns(pipeline, fenced)
        pipeline.more_batches(2)
    pipeline.finish()
    assert len(pipeline.generations()) == 1


def stand_by(pipeline: Pipeline, job: Service) -> Service:
    """Start it as a standby; return it once it waits, warm."""
    job.start("--standby")
    wait_for_standby(pipeline, job)
    return job


def wait_for_standby(pipeline: Pipeline, job: Service, *, times: int = 1) -> None:
    pipeline.wait_until(
        lambda: len(READY.findall(job.log())) >= times,
        "a standby",
        timeout_s=PATIENCE_S,
        alive=(job,),
    )


def owns(pipeline: Pipeline, job: Service) -> None:
    pipeline.wait_until(lambda: pipeline.owns(job), "the standby's turn", timeout_s=PATIENCE_S, alive=(job,))
