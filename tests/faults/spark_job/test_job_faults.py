"""Whatever step of the job a fault hits, each output arrives once: the whole matrix (`make faults`) and a sample of it for every run."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from devstack.kafka import KafkaServer
from service.lifecycle.fault_points import FaultPlan
from tests.support.faults.faulty_jobs import OF_A_TASK, OF_THE_DRIVER, FailingDriver, FaultyJob, KilledWorker
from tests.support.faults.job_cells import DRIVER, PAGE, TASK, JobCell, Situation
from tests.support.faults.job_scenario import JobScenario, options
from tests.support.faults.matrix import Matrix
from tests.support.faults.state import Kind
from tests.support.pipeline.cache_damage import DELETED
from tests.support.pipeline.pipeline import Pipeline

GROUPS = [(title, faulty_job) for title in DRIVER for faulty_job in OF_THE_DRIVER] + [
    (title, faulty_job) for title in TASK for faulty_job in OF_A_TASK
]
SAMPLES = {
    FailingDriver: Situation(
        "a sample",
        (
            JobCell("sink.after_ledger", with_rows=True),
            JobCell("sink.after_commit", Kind.UNHEARD, with_rows=True),
        ),
        one_by_one=True,
    ),
    KilledWorker: Situation("a sample", (JobCell("task.during_rebuild", cache=DELETED),), one_by_one=True),
}


@pytest.fixture
def faulty(
    faulty_job: type[FaultyJob], database: str, kafka: KafkaServer, topic_prefix: str, tmp_path: Path
) -> Iterator[tuple[Pipeline, FaultPlan]]:
    """A pipeline whose job meets the faults of a plan. Where its tasks meet them, sessions that time out are emitted."""
    plan = FaultPlan(tmp_path / "faults.json")
    of = options(plan, "emit" if faulty_job in OF_A_TASK else "dead_letter")
    with Pipeline(database, kafka.bootstrap_servers, topic_prefix, tmp_path, options=of) as made:
        yield made, plan


@pytest.mark.guarantee(21, 25, 55)
@pytest.mark.faults
@pytest.mark.timeout(7_200)
@pytest.mark.parametrize(("title", "faulty_job"), GROUPS)
def test_a_fault_at_any_step_loses_and_repeats_nothing(
    faulty: tuple[Pipeline, FaultPlan],
    matrix: Matrix,
    tell: Callable[[str], None],
    title: str,
    faulty_job: type[FaultyJob],
) -> None:
    pipeline, plan = faulty
    situations = (DRIVER | TASK)[title]
    rows = [row for situation in situations for row in situation.rows(faulty_job.name)]
    group = matrix.declare(f"{title}, {faulty_job.name}", rows)
    JobScenario(pipeline, faulty_job(pipeline, plan), group, tell, seed=1_000).run(situations)


@pytest.mark.guarantee(21)
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize(
    "faulty_job", SAMPLES
)  # tests/acceptance/exactly_once/test_kill_loops.py kills the driver
def test_a_fault_just_before_and_one_just_after_commit_and_one_of_a_worker_lose_and_repeat_nothing(
    faulty: tuple[Pipeline, FaultPlan], faulty_job: type[FaultyJob]
) -> None:
    pipeline, plan = faulty
    situation = SAMPLES[faulty_job]
    group = Matrix(PAGE).declare(situation.title, situation.rows(faulty_job.name))
    JobScenario(pipeline, faulty_job(pipeline, plan), group, print, seed=2_000).run([situation])
