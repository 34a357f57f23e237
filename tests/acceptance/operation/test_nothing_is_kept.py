"""An attempt that has failed, and a batch that is committed, leave nothing behind: a job that lives for months does not fill up.

`make soak` runs these for longer (the two variables below).
"""

import os
from collections import Counter

import pytest

from service.fault_points import Action, Fault
from tests.support.pipeline.pipeline import Pipeline
from tests.support.processes.kept import Kept, files_below, live_objects

ATTEMPTS = int(os.environ.get("KEPT_ATTEMPTS", "16"))
BATCHES = int(os.environ.get("KEPT_BATCHES", "300"))
pytestmark = pytest.mark.timeout(900 + 30 * ATTEMPTS + 2 * BATCHES)
WARM = 6
# Of each kind, by threads that come and go, and connections that are made when they are first needed.
SLACK = 6
FAILING_AT = ("query.before_action", "query.after_action", "sink.after_copy", "start.before_query")
AT_ONCE = {
    "OUTBOX_RESTART__STRATEGY": "fixed_delay",
    "OUTBOX_RESTART__DELAY_S": "0",
    "OUTBOX_JOB__MAX_EVENTS_PER_BATCH": "40",
}


def test_failed_attempts_leave_no_thread_no_descriptor_no_file_and_no_object(pipeline: Pipeline) -> None:
    pipeline.feed(1, sessions=200)
    job = pipeline.job
    failures = [Fault(FAILING_AT[n % len(FAILING_AT)], Action.RAISE) for n in range(ATTEMPTS)]
    warm, rest = failures[:WARM], failures[WARM:]
    seen = []
    for plan in (warm, rest):
        done = len(pipeline.faults.fired()) + len(plan)
        pipeline.faults.write(*plan, Fault("query.before_action", Action.HOLD))
        if not job.is_alive():
            job.start(**pipeline.armed, **AT_ONCE)
        pipeline.wait_until(
            lambda: len(pipeline.faults.fired()) > done,  # noqa: B023
            f"{len(plan)} failed attempts",
            alive=(job,),
        )
        java = job.started("java")
        seen.append((live_objects(java), kept(pipeline), files_below(pipeline.scratch)))
    assert len(pipeline.restarts()) == ATTEMPTS
    (objects_before, kept_before, files_before), (objects_after, kept_after, files_after) = seen
    assert not grown(objects_before, objects_after, len(rest))
    for before, after in zip(kept_before, kept_after, strict=True):
        assert after.threads <= before.threads + SLACK, (kept_before, kept_after)
        assert after.descriptors <= before.descriptors + SLACK, (kept_before, kept_after)
    assert files_after <= files_before + SLACK
    pipeline.faults.write()


def test_batches_leave_no_object_in_the_jvm_and_no_file(pipeline: Pipeline) -> None:
    pipeline.feed(2, sessions=BATCHES * 2)
    job = pipeline.job
    seen = []
    for hit in (BATCHES // 3, BATCHES - BATCHES // 3):
        fired = len(pipeline.faults.fired())
        pipeline.faults.write(Fault("query.after_batch", Action.HOLD, hit))
        if not job.is_alive():
            job.start(**pipeline.armed, OUTBOX_JOB__MAX_EVENTS_PER_BATCH="40")
        pipeline.wait_until(
            lambda: len(pipeline.faults.fired()) > fired,  # noqa: B023
            f"{hit} batches",
            alive=(job,),
        )
        seen.append((live_objects(job.started("java")), files_below(pipeline.scratch)))
    (objects_before, files_before), (objects_after, files_after) = seen
    assert not grown(objects_before, objects_after, BATCHES // 2)
    assert files_after <= files_before + SLACK
    pipeline.faults.write()


def kept(pipeline: Pipeline) -> list[Kept]:
    """By the driver, and by its JVM."""
    driver = next(process for process in pipeline.job.processes() if process.pid == pipeline.job.pid)
    return [Kept.by(driver), Kept.by(pipeline.job.started("java"))]


def grown(before: Counter[str], after: Counter[str], times: int) -> dict[str, int]:
    """Classes with at least one more object for each time that something happened."""
    return {name: count - before[name] for name, count in after.items() if count - before[name] >= times}
