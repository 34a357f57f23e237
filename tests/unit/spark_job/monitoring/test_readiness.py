"""The job is ready while input becomes outputs, or while there is none; else it says why not."""

from dataclasses import replace

import pytest

from spark_job.monitoring.health import JobHealth
from spark_job.monitoring.readiness import JobSnapshot, judge

RUN = {"generation": 3}
SEEN = JobSnapshot(
    phase="running",
    phase_s=100.0,
    attempt=2,
    because="",
    restarts_in_s=0.0,
    progress_s_ago=0.4,
    doing="Waiting for data to arrive",
    held_back=None,
    heartbeat_s_ago=1.0,
    heartbeat_error="",
    run=RUN,
)


def reasons(seen: JobSnapshot) -> list[str]:
    return judge(seen, progress_s=60, owner_timeout_s=30).reasons


def test_a_query_that_gets_on_is_ready() -> None:
    verdict = judge(SEEN, progress_s=60, owner_timeout_s=30)
    assert verdict.as_json("ready") == {
        "ready": True,
        "reasons": [],
        "phase": "running",
        "attempt": 2,
        "standby": None,
        "progress_s_ago": 0.4,
        "spark": "Waiting for data to arrive",
        "held_back": None,
        "run": RUN,
    }


def test_a_standby_is_ready_to_continue_and_says_for_whom() -> None:
    verdict = judge(
        replace(SEEN, phase="standby", because="run X owns the outbox"), progress_s=60, owner_timeout_s=30
    )
    assert verdict.reasons == []
    assert verdict.as_json("ready")["standby"] == "run X owns the outbox"


@pytest.mark.guarantee(132)
@pytest.mark.parametrize(
    ("seen", "reason"),
    [
        (replace(SEEN, phase="starting", phase_s=7.2), "attempt 2 has been starting for 7 s"),
        (
            replace(
                SEEN, phase="restarting", because="UnavailableError: away", restarts_in_s=60, phase_s=13.2
            ),
            "attempt 2 failed, the next one begins in 47 s: UnavailableError: away",
        ),
        (
            replace(SEEN, phase="restarting", because="UnavailableError: away", restarts_in_s=1, phase_s=9),
            "attempt 2 failed, the next one begins in 0 s: UnavailableError: away",
        ),
        (replace(SEEN, phase="waiting", because="nobody can be asked"), "nobody can be asked"),
        (replace(SEEN, phase="stopping"), "the job is stopping"),
        (
            replace(SEEN, progress_s_ago=None, doing="Initializing sources"),
            "the query began 100 s ago and has done nothing yet: Initializing sources",
        ),
        (
            replace(SEEN, progress_s_ago=60.6, doing="Getting offsets"),
            "no batch and no trigger of the query has ended for 61 s: Getting offsets",
        ),
        (
            replace(SEEN, progress_s_ago=600, held_back="500 events wait"),
            "held back: 500 events wait",
        ),
        (
            replace(SEEN, heartbeat_error="refused", heartbeat_s_ago=90),
            "the heartbeat cannot be written: refused",
        ),
        (replace(SEEN, heartbeat_s_ago=30.6), "no heartbeat for 31 s: another run may take the outbox over"),
    ],
)
def test_a_job_that_does_not_get_on_says_why(seen: JobSnapshot, reason: str) -> None:
    assert reasons(seen) == [reason]


def test_a_batch_may_take_as_long_as_the_setting_says() -> None:
    assert reasons(replace(SEEN, progress_s_ago=59.9)) == []


def test_the_condition_is_what_the_threads_said_last() -> None:
    health = JobHealth()
    health.starting(1)
    assert reasons(health.snapshot()) == ["attempt 1 has been starting for 0 s"]
    health.running(RUN)
    health.query_described("Getting offsets", between_triggers=False)
    assert reasons(health.snapshot()) == ["the query began 0 s ago and has done nothing yet: Getting offsets"]
    health.query_described("Waiting for data to arrive", between_triggers=True)
    assert reasons(health.snapshot()) == []
    health.batch_computed(0)
    health._progress_at = -1_000.0
    health.query_described("Waiting for data to arrive", between_triggers=True)
    assert "no batch" in reasons(health.snapshot())[0], "its commit hangs"
    health.batch_committed(0)
    assert reasons(health.snapshot()) == []
    health.held_back("500 events wait")
    assert reasons(health.snapshot()) == ["held back: 500 events wait"]
    health.held_back(None)
    health.heartbeat_failed("refused")
    assert reasons(health.snapshot()) == ["the heartbeat cannot be written: refused"]
    health.heartbeat_written()
    assert reasons(health.snapshot()) == []
    health.query_ending()
    assert reasons(health.snapshot()) == ["the job is stopping"]
    health.restarting("UnavailableError: away", 5)
    assert reasons(health.snapshot())[0].startswith("attempt 1 failed")
    health.starting(2)
    health.running(RUN)
    # What an earlier attempt did does not count.
    assert "has done nothing yet" in reasons(health.snapshot())[0]
    health.batch_committed(0)
    assert reasons(health.snapshot()) == []


def test_a_long_wait_for_the_next_attempt_is_no_hung_thread() -> None:
    health = JobHealth(hung_s=60)
    with health.watched():
        health.starting(1)
        health.restarting("away", 3_600)
        assert health.loops.verdict().details["loops"]["main"]["allowed_s"] == 3_660
        health.running(RUN)
        health.query_polled()
        assert health.loops.verdict().details["loops"]["main"]["allowed_s"] == 120
