"""An attempt that has failed, and a batch that is committed, leave nothing behind: a job that lives for months does not fill up.

`make soak` runs these for longer (the two variables below).
"""

import os

import pytest

from service.fault_points import Action, Fault
from tests.support.pipeline.pipeline import Pipeline
from tests.support.processes.kept import Kept, files_below

ATTEMPTS = int(os.environ.get("KEPT_ATTEMPTS", "16"))
BATCHES = int(os.environ.get("KEPT_BATCHES", "80"))
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


def test_failed_attempts_leave_no_thread_no_descriptor_and_no_file(pipeline: Pipeline) -> None:
    pipeline.feed(1, sessions=200)
    failures = [Fault(FAILING_AT[n % len(FAILING_AT)], Action.RAISE) for n in range(ATTEMPTS)]
    seen = [held_after(pipeline, plan, "query.before_action") for plan in (failures[:WARM], failures[WARM:])]
    assert len(pipeline.restarts()) == ATTEMPTS
    nothing_is_kept(*seen)
    pipeline.faults.write()


def test_batches_leave_no_thread_no_descriptor_and_no_file(pipeline: Pipeline) -> None:
    pipeline.feed(2, sessions=BATCHES * 2)
    seen = [held_after(pipeline, [], "query.after_batch", hit) for hit in (20, BATCHES - 20)]
    assert pipeline.restarts() == []
    nothing_is_kept(*seen)
    pipeline.faults.write()


Seen = tuple[list[Kept], int]
"""By the driver and its JVM, and files."""


def held_after(pipeline: Pipeline, plan: list[Fault], point: str, hit: int = 1) -> Seen:
    """Let all of a plan happen to the job, hold it at a point, and see what it keeps."""
    done = len(pipeline.faults.fired()) + len(plan)
    pipeline.faults.write(*plan, Fault(point, Action.HOLD, hit))
    job = pipeline.job
    if not job.is_alive():
        job.start(**pipeline.armed, **AT_ONCE)
    pipeline.wait_until(lambda: len(pipeline.faults.fired()) > done, f"a job at {point}", alive=(job,))
    driver = next(process for process in job.processes() if process.pid == job.pid)
    return [Kept.by(driver), Kept.by(job.started("java"))], files_below(pipeline.scratch)


def nothing_is_kept(before: Seen, after: Seen) -> None:
    for earlier, later in zip(before[0], after[0], strict=True):
        assert later.threads <= earlier.threads + SLACK, (before, after)
        assert later.descriptors <= earlier.descriptors + SLACK, (before, after)
    assert after[1] <= before[1] + SLACK
