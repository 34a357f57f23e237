"""What one attempt hands on to the next: a person's word holds for one start, and a stop is a stop."""

import threading
import weakref
from uuid import uuid4

import pytest

from service.errors import (
    CredentialsRefusedError,
    DatabaseMissingError,
    DefectError,
    DiskFullError,
    FencedError,
    HostUnknownError,
    OptionsRefusedError,
    OutboxError,
    SecretUnreadableError,
    SparkLostError,
    UnavailableError,
)
from service.settings import JobSettings, RestartSettings
from spark_job.ledger.requests import JobRequest
from spark_job.monitoring.health import JobHealth
from spark_job.recovery.findings import AcceptedRisks
from spark_job.spark import jvm
from spark_job.spark.lazy_session import LazySession
from spark_job.supervisor.attempts import AttemptPlan, Restarts, passes_by_itself

AT_ONCE = RestartSettings(delay_s=0)
AWAY = UnavailableError("away")


def after(plan: AttemptPlan, error: OutboxError, settings: RestartSettings = AT_ONCE) -> AttemptPlan | None:
    """The plan after an attempt that failed."""
    return Restarts(settings, LazySession(JobSettings()), threading.Event(), JobHealth()).after(plan, error)


def test_a_lost_jvm_that_is_not_this_processes_child_cannot_be_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(jvm, "is_ours", lambda: False)
    assert not passes_by_itself(SparkLostError("x"))
    assert passes_by_itself(UnavailableError("x"))


@pytest.mark.guarantee(82)
def test_what_a_person_accepted_holds_until_a_start_succeeds_and_for_no_other() -> None:
    plan = AttemptPlan(accepted=AcceptedRisks(data_loss=True), take_over=True)
    second = after(plan, AWAY)
    assert second is not None
    assert (second.attempt, second.accepted, second.take_over) == (2, AcceptedRisks(data_loss=True), False)
    second.use()
    third = after(second, AWAY)
    assert third is not None
    assert (third.attempt, third.accepted, third.take_over) == (3, AcceptedRisks(), False)


def test_accepted_differences_of_open_sessions_hold_until_a_commit() -> None:
    plan = AttemptPlan(accepted=AcceptedRisks(data_loss=True))
    assert not plan.may_differ
    plan.use()
    again = after(plan, AWAY)
    assert again is not None
    again.use()
    again.ended(has_committed=False)
    assert again.may_differ
    other = AttemptPlan(accepted=AcceptedRisks(truncation=True))
    other.use()
    assert not other.may_differ


def test_accepted_differences_of_open_sessions_end_with_a_commit() -> None:
    plan = AttemptPlan(accepted=AcceptedRisks(data_loss=True))
    plan.use()
    plan.ended(has_committed=True)
    assert not plan.may_differ


def test_each_attempt_has_its_own_run_and_knows_those_before() -> None:
    first = AttemptPlan()
    second = first.following()
    third = second.following()
    assert len({first.run_id, second.run_id, third.run_id}) == 3
    assert third.former_runs == (first.run_id, second.run_id)


def test_an_outage_of_weeks_does_not_make_plans_larger() -> None:
    plan, newest = AttemptPlan(), AttemptPlan()
    for _ in range(3_000):
        plan, newest = plan.following(), plan
    assert len(plan.former_runs) == 1_000
    assert plan.former_runs[-1] == newest.run_id


def test_a_request_is_carried_on_until_a_start_has_fulfilled_it() -> None:
    request = JobRequest(1, uuid4(), "restore", {"policy": "skip"})
    again = after(AttemptPlan(request=request), AWAY)
    assert again is not None
    assert again.request == request
    again.use()
    assert again.following().request is None


@pytest.mark.parametrize(("error", "tidies"), [(DiskFullError("x"), True), (AWAY, False)])
def test_a_full_disk_gets_the_room_that_spark_itself_has_taken(
    monkeypatch: pytest.MonkeyPatch, error: OutboxError, tidies: bool
) -> None:
    asked: list[bool] = []

    def renew(_spark: LazySession, *, tidy: bool = False) -> bool:
        asked.append(tidy)
        return True

    monkeypatch.setattr(LazySession, "renew", renew)
    assert after(AttemptPlan(), error) is not None
    assert asked == [tidies]


def test_what_does_not_pass_and_what_comes_too_often_ends_the_process() -> None:
    with pytest.raises(FencedError):
        after(AttemptPlan(), FencedError("x"))
    with pytest.raises(UnavailableError):
        after(AttemptPlan(), AWAY, RestartSettings(strategy="none"))


@pytest.mark.parametrize(
    ("wrong", "exit_code"),
    [
        (DatabaseMissingError, 3),
        (SecretUnreadableError, 2),
        (CredentialsRefusedError, 16),
        (HostUnknownError, 2),
        (OptionsRefusedError, 2),
    ],
)
def test_what_never_worked_ends_the_process_and_what_has_worked_before_is_waited_for(
    wrong: type[OutboxError], exit_code: int
) -> None:
    second = after(AttemptPlan(), AWAY)
    assert second is not None
    for plan in (AttemptPlan(), second):
        with pytest.raises(wrong) as ended:
            after(plan, wrong("x"))
        assert ended.value.exit_code == exit_code
    plan = AttemptPlan()
    plan.use()
    again = after(plan, wrong("x"))
    assert again is not None
    assert again.started


def test_a_standby_that_loses_the_outbox_continues_to_its_next_attempt() -> None:
    restarts = Restarts(AT_ONCE, LazySession(JobSettings()), threading.Event(), JobHealth(), standby=True)
    first = AttemptPlan()
    second = restarts.after(first, FencedError("x"))
    assert second is not None
    assert second.former_runs == (first.run_id,)


def test_a_failure_after_a_stop_was_asked_for_ends_the_process_in_order() -> None:
    stop = threading.Event()
    stop.set()
    restarts = Restarts(RestartSettings(strategy="none"), LazySession(JobSettings()), stop, JobHealth())
    assert restarts.after(AttemptPlan(), AWAY) is None
    with pytest.raises(FencedError):
        restarts.after(AttemptPlan(), FencedError("x"))


def test_a_failed_attempt_holds_nothing_of_its_work_while_the_job_waits_for_the_next_one() -> None:
    class Rows:
        """What the attempt had computed."""

    held: list[weakref.ref[Rows]] = []

    def attempt() -> None:
        rows = Rows()
        held.append(weakref.ref(rows))
        try:
            raise ValueError(f"{rows} are not committed")
        except ValueError as error:
            raise AWAY from error

    class Waiting(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            assert held[0]() is None
            return super().wait(timeout)

    restarts = Restarts(AT_ONCE, LazySession(JobSettings()), Waiting(), JobHealth())
    try:
        attempt()
    except UnavailableError as error:
        assert restarts.after(AttemptPlan(), error) is not None  # noqa: PT017 - the `except` block is what is tested
    assert len(held) == 1


def test_a_defect_ends_the_process_when_it_comes_a_third_time_without_a_commit_between() -> None:
    health = JobHealth()
    restarts = Restarts(AT_ONCE, LazySession(JobSettings()), threading.Event(), health)
    plan = AttemptPlan()

    def fail(error: OutboxError, *, commits: bool = False) -> None:
        health.starting(1)
        if commits:
            health.batch_committed(0)
        assert restarts.after(plan, error) is not None

    for _ in range(2):
        fail(DefectError("KeyError: 'a' at offset 17"))
        fail(DefectError("KeyError: 'a' at offset 18"))
        fail(AWAY)
        fail(DefectError("KeyError: 'b'"))
    for _ in range(5):
        fail(DefectError("KeyError: 'a'"), commits=True)
    fail(DefectError("KeyError: 'a'"))
    with pytest.raises(DefectError):
        fail(DefectError("KeyError: 'a'"))


def test_a_defect_is_the_same_whatever_offsets_and_addresses_its_message_has() -> None:
    restarts = Restarts(AT_ONCE, LazySession(JobSettings()), threading.Event(), JobHealth())
    for address in ("0x7f3a12", "0x55bc0d"):
        error = DefectError(f"TypeError: <Session object at {address}> is no str")
        assert restarts.after(AttemptPlan(), error) is not None
    with pytest.raises(DefectError):
        restarts.after(AttemptPlan(), DefectError("TypeError: <Session object at 0x7fffaa> is no str"))


def test_losing_a_race_is_no_failure_of_a_standby_whatever_the_strategy() -> None:
    none = RestartSettings(strategy="none")
    restarts = Restarts(none, LazySession(JobSettings()), threading.Event(), JobHealth(), standby=True)
    first = AttemptPlan()
    second = restarts.after(first, FencedError("x"))
    assert second is not None
    assert second.former_runs == (first.run_id,)
    with pytest.raises(UnavailableError):
        restarts.after(second, AWAY)
