"""Whatever step of the job a fault hits, each output arrives once: the whole matrix (`make faults`) and a sample of it for every run."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from db.fault_points import Action, Plan
from devstack.kafka import KafkaServer
from tests.acceptance.pipeline import Pipeline
from tests.faults.cells import GROUPS, PAGE, Cell, Situation
from tests.faults.matrix import Matrix
from tests.faults.play import Play, options
from tests.faults.state import Kind
from tests.faults.victim import VICTIMS

SAMPLE = Situation(
    "a sample",
    (
        Cell("sink.after_ledger", Kind.PLANNED, with_rows=True),
        Cell("sink.after_commit", Kind.STORED, with_rows=True),
    ),
    one_by_one=True,
)


@pytest.fixture
def faulty(
    database: str, kafka: KafkaServer, topic_prefix: str, tmp_path: Path
) -> Iterator[tuple[Pipeline, Plan]]:
    """A pipeline whose job meets the faults of a plan."""
    plan = Plan(tmp_path / "faults.json")
    with Pipeline(database, kafka.bootstrap_servers, topic_prefix, tmp_path, options=options(plan)) as made:
        yield made, plan


@pytest.mark.faults
@pytest.mark.timeout(7_200)
@pytest.mark.parametrize("action", VICTIMS)
@pytest.mark.parametrize("title", GROUPS)
def test_a_fault_at_any_step_loses_and_repeats_nothing(
    faulty: tuple[Pipeline, Plan], matrix: Matrix, tell: Callable[[str], None], title: str, action: Action
) -> None:
    pipeline, plan = faulty
    situations = GROUPS[title]
    group = matrix.declare(f"{title}, {action}", [row for each in situations for row in each.rows(action)])
    Play(pipeline, VICTIMS[action](pipeline, plan), group, tell, seed=1_000).run(situations)


@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("action", [Action.RAISE])  # tests/acceptance/test_kill_loops.py kills
def test_a_fault_just_before_and_one_just_after_commit_lose_and_repeat_nothing(
    faulty: tuple[Pipeline, Plan], action: Action
) -> None:
    pipeline, plan = faulty
    group = Matrix(PAGE).declare(SAMPLE.title, SAMPLE.rows(action))
    Play(pipeline, VICTIMS[action](pipeline, plan), group, print, seed=2_000).run([SAMPLE])
