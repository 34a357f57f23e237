"""Both services through an outage of Postgres."""

from collections.abc import Callable

from tests.support.pipeline.pipeline import Pipeline
from tests.support.waiting import wait_until

UNAVAILABLE = 6
TIMEOUT_S = 600.0


def go_on(pipeline: Pipeline, done: Callable[[], object], what: str) -> None:
    """Wait until `done`, as a supervisor does: the job is started again when it ends because Postgres is away, and for nothing else."""
    job = pipeline.job

    def holds() -> object:
        assert pipeline.publisher.is_alive(), pipeline.publisher.tail()
        if not job.is_alive():
            code = job.wait()
            assert code == UNAVAILABLE, (code, job.tail())
            job.start()
        return done()

    wait_until(
        holds,
        lambda: f"{what}\n{job.post_mortem()}\n{pipeline.publisher.post_mortem()}",
        timeout_s=TIMEOUT_S,
    )


def end_of(pipeline: Pipeline) -> int:
    """Return the exit code with which the job ends, other than that Postgres is away."""
    job = pipeline.job
    while (code := job.wait(TIMEOUT_S)) == UNAVAILABLE:
        job.start()
    return code
