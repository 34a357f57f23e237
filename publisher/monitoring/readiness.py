"""Decides a publisher's `/readyz`: ready if its lanes are being delivered, else 503 with the reasons (decision 11). Pure."""

from dataclasses import dataclass

from service.observability.verdict import HealthVerdict


@dataclass(frozen=True, slots=True)
class LaneSnapshot:
    """A lane that this process works on. `progress_s_ago`: seconds since it committed a transaction or found nothing to deliver.

    `state`: opening, running, retrying or stopped. `reason`: why it is retrying or stopped, else empty. `seq`: its newest transaction, None
    before the first step.
    """

    epoch: int
    lane: int
    state: str
    reason: str
    progress_s_ago: float
    seq: int | None
    transaction_rows: int | None = None
    """The most rows that the next transaction may carry, after failures fewer than the settings say. None before the first step."""
    login_refused: bool = False
    """Whether Kafka refused this process's login at the newest failure."""


@dataclass(frozen=True, slots=True)
class HealthSnapshot:
    """The state of a process. `phase`: starting, running or stopping. `assignment_error`: why the assignment could not be read, else empty.

    `has_epoch`: whether the job has created lanes; `unheld`: lanes with work but no holder, each with its seconds in this state.
    """

    phase: str
    assignment_error: str
    assignment_read_s_ago: float
    heartbeat_s_ago: float
    has_epoch: bool
    unheld: tuple[tuple[int, float], ...]
    lanes: tuple[LaneSnapshot, ...]
    withdrawn: str = ""
    """Why the process leaves its lanes to others, empty if it does not."""


def judge(seen: HealthSnapshot, *, progress_s: float, poll_s: float, lease_s: float) -> HealthVerdict:
    """Return whether the process is ready. `progress_s`: see [metrics]; `poll_s`, `lease_s`: see [publisher]."""
    reasons: list[str] = []
    notes: list[str] = []
    limit_s = progress_s + poll_s
    if seen.phase != "running":
        reasons.append(_phase(seen))
    else:
        if seen.assignment_error:
            reasons.append(f"cannot read the assignment of lanes: {seen.assignment_error}")
        elif seen.assignment_read_s_ago > limit_s:
            reasons.append(f"has not read the assignment of lanes for {seen.assignment_read_s_ago:.0f} s")
        if seen.withdrawn:
            reasons.append(seen.withdrawn)
        if seen.heartbeat_s_ago > lease_s:
            reasons.append(
                f"no heartbeat for {seen.heartbeat_s_ago:.0f} s: other processes take over the lanes"
            )
        reasons += [reason for lane in seen.lanes if (reason := _lane(lane, limit_s))]
        # A lane that moves has no holder for a moment. A process without lanes would take it at once.
        unheld = [lane for lane, for_s in seen.unheld if not seen.lanes or for_s > limit_s]
        if unheld:
            reasons.append(f"nobody holds lanes {', '.join(map(str, unheld))}")
        if not seen.lanes and not reasons:
            notes.append(_standing_by(seen))
    return HealthVerdict(
        reasons, {"phase": seen.phase, "notes": notes, "lanes": [_shown(lane) for lane in seen.lanes]}
    )


def _phase(seen: HealthSnapshot) -> str:
    if seen.phase == "stopping":
        return "the process is stopping"
    return f"starting: {seen.assignment_error or 'Postgres and Kafka have not answered yet'}"


def _standing_by(seen: HealthSnapshot) -> str:
    if not seen.has_epoch:
        return "there are no lanes yet: the job makes them when it starts for the first time"
    return "standing by: other processes hold every lane that has work"


def _lane(lane: LaneSnapshot, limit_s: float) -> str | None:
    """Return why the lane is stalled, None if it makes progress."""
    if lane.reason:
        return f"lane {lane.lane} is {lane.state}: {lane.reason}"
    if lane.seq is None:
        return f"lane {lane.lane} has been opening for {lane.progress_s_ago:.1f} s"
    if lane.progress_s_ago > limit_s:
        return f"lane {lane.lane} has been stalled for {lane.progress_s_ago:.0f} s: no transaction was committed, and rows may wait"
    return None


def _shown(lane: LaneSnapshot) -> dict[str, object]:
    return {
        "epoch": lane.epoch,
        "lane": lane.lane,
        "state": lane.state,
        "reason": lane.reason or None,
        "progress_s_ago": round(lane.progress_s_ago, 1),
        "seq": lane.seq,
        "transaction_rows": lane.transaction_rows,
    }
