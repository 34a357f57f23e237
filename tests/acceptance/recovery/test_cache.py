"""The workers' cache of open sessions may be lost, damaged or old: what comes out is the same, and only what is missing is read again."""

import shutil
from pathlib import Path

import pytest

from tests.support.pipeline.cache_damage import CACHE_DAMAGES, bring_back, damage
from tests.support.pipeline.pipeline import Pipeline


@pytest.mark.guarantee(39, 41)
@pytest.mark.faults
def test_whatever_happens_to_the_cache_the_job_continues_and_reads_again_only_what_it_must(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    earlier = tmp_path / "earlier"
    pipeline.publisher.start()
    pipeline.hold_open(30)
    pipeline.feed(61, sessions=30)
    pipeline.start_and_see("fresh")
    pipeline.wait_for_input(pipeline.expectation())
    shutil.copytree(pipeline.cache, earlier)
    pipeline.hold_open(30)  # a state is its content: from here on another one than what was copied

    it_continues(pipeline, 62, finds_again=False)
    for number, how in enumerate(CACHE_DAMAGES):
        damage(pipeline.cache, how)
        it_continues(pipeline, 63 + number, finds_again=True)
    assert pipeline.restarts() == []
    assert "must be a folder of this user alone (mode 0700)" in pipeline.job.log()
    pipeline.lose_cache()
    it_continues(pipeline, 79, finds_again=True)

    # Another life on the same machine finds everything.
    pipeline.crash()
    pipeline.job.start()
    it_continues(pipeline, 80, finds_again=False)
    # One on a machine that was used before finds what was open then.
    pipeline.crash()
    bring_back(pipeline.cache, earlier)
    pipeline.job.start()
    it_continues(pipeline, 81, finds_again=True)
    pipeline.release()
    pipeline.finish()
    assert pipeline.restored() == ["fresh", "position", "position"]


def it_continues(pipeline: Pipeline, seed: int, *, finds_again: bool) -> None:
    """Feed every partition, and see whether what was open before had to be found again."""
    before = len(pipeline.rebuilt())
    pipeline.feed(seed, sessions=30)
    pipeline.wait_for_input(pipeline.expectation())
    pipeline.wait_for_report()
    assert bool(pipeline.rebuilt()[before:]) == finds_again
