"""`spark-job try` beside a running job: what it says would go out is what the job has stored, and it disturbs nobody."""

import json

import pytest

from tests.support.pipeline.pipeline import Pipeline
from tests.support.pipeline.transforms import FAILS_EVERY
from tests.support.processes.commands import run_command

MENDED = "tests.support.pipeline.transforms:mended"


@pytest.mark.faults
def test_a_trial_gives_what_the_job_has_stored_and_the_diff_of_another_transform(pipeline: Pipeline) -> None:
    job = pipeline.job
    pipeline.publisher.start()
    job.start()
    pipeline.feed(91, sessions=200)
    expected = pipeline.expectation()
    pipeline.complete(expected)

    done = run_command(
        "spark_job", "try", "--last", "150", "--json", variables=pipeline.variables, timeout_s=60
    )
    assert done.returncode == 1, done.stderr
    tried = json.loads(done.stdout)
    assert tried["outbox"] == {"compared": True, "because": None}
    sessions = tried["sessions"]
    assert len(sessions) == 150
    failing = [each for each in sessions if each["end_offset"] % FAILS_EVERY == 0]
    assert tried["failed"] == len(failing) > 0
    for each in sessions:
        fails = each["end_offset"] % FAILS_EVERY == 0
        assert (each["failure"] is not None) == fails
        assert each["outbox"]["state"] == ("dead_letter" if fails else "same"), each
        assert fails or each["outputs"] == each["outbox"]["stored"]
    assert sum(len(each["outputs"]) for each in sessions) > 1_000

    changed = pipeline.command_json("try", "--last", "150", OUTBOX_TRANSFORM__FUNCTION=MENDED)
    assert {each["outbox"]["state"] for each in changed["sessions"]} == {"altered", "dead_letter"}
    found = {state for each in changed["sessions"] for state in each["outbox"].get("outputs", ())}
    assert found == {"altered", "new", "same"}  # a tombstone has nothing to alter

    pipeline.stop()
    pipeline.assert_exactly_once(expected)
    assert pipeline.restarts() == []
