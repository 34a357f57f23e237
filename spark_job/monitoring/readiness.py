"""Judge `/readyz` of the job: it is ready while input becomes outputs, or while there is no input (decision 11). Pure.

A standby is ready when it could take over at once: Spark is warm, and Postgres says who the owner is.
"""

from dataclasses import dataclass
from typing import Any, Literal

from service.observability.verdict import HealthVerdict

Phase = Literal["starting", "standby", "waiting", "running", "restarting", "stopping"]


@dataclass(frozen=True, slots=True)
class JobSnapshot:
    """The job at one moment.

    `because`: why it restarts, stands by, or waits for Postgres to say who the owner is. `restarts_in_s`: the delay before the restart,
    counted from the beginning of the phase.

    In phase `running`: `progress_s_ago`, the seconds since a batch was committed or a trigger found nothing to read, None before the first
    of these; `doing`, Spark's description of what it does; `held_back`, why no batch is committed; `heartbeat_error`, why the last
    heartbeat failed.
    """

    phase: Phase
    phase_s: float
    attempt: int
    because: str
    restarts_in_s: float
    progress_s_ago: float | None
    doing: str
    held_back: str | None
    heartbeat_s_ago: float
    heartbeat_error: str
    run: dict[str, Any]


def judge(seen: JobSnapshot, *, progress_s: float, owner_timeout_s: float) -> HealthVerdict:
    """Return whether the job is ready. `progress_s`: see [metrics]; `owner_timeout_s`: see [job]."""
    match seen.phase:
        case "running":
            reasons = _running(seen, progress_s, owner_timeout_s)
        case "standby":
            reasons = []
        case _:
            reasons = [_phase(seen)]
    details = {
        "phase": seen.phase,
        "attempt": seen.attempt,
        "standby": seen.because if seen.phase == "standby" else None,
        "progress_s_ago": None if seen.progress_s_ago is None else round(seen.progress_s_ago, 1),
        "spark": seen.doing or None,
        "held_back": seen.held_back,
        "run": seen.run,
    }
    return HealthVerdict(reasons, details)


def _phase(seen: JobSnapshot) -> str:
    match seen.phase:
        case "restarting":
            left_s = max(0.0, seen.restarts_in_s - seen.phase_s)
            return f"attempt {seen.attempt} failed, the next one begins in {left_s:.0f} s: {seen.because}"
        case "waiting":
            return seen.because
        case "stopping":
            return "the job is stopping"
        case _:
            return f"attempt {seen.attempt} has been starting for {seen.phase_s:.0f} s"


def _running(seen: JobSnapshot, progress_s: float, owner_timeout_s: float) -> list[str]:
    reasons = []
    if seen.heartbeat_error:
        reasons.append(f"the heartbeat cannot be written: {seen.heartbeat_error}")
    elif seen.heartbeat_s_ago > owner_timeout_s:
        reasons.append(f"no heartbeat for {seen.heartbeat_s_ago:.0f} s: another run may take the outbox over")
    if seen.held_back is not None:
        reasons.append(f"held back: {seen.held_back}")
    elif seen.progress_s_ago is None:
        reasons.append(f"the query began {seen.phase_s:.0f} s ago and has done nothing yet: {seen.doing}")
    elif seen.progress_s_ago > progress_s:
        reasons.append(
            f"no batch and no trigger of the query has ended for {seen.progress_s_ago:.0f} s: {seen.doing}"
        )
    return reasons
