"""Decides from one read of the tables which conditions need a person: the conditions of the alerts, without their durations. Pure."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from publisher.console.alerts.observed import COUNT_LIMIT, Observed
from publisher.protocol.stop_reasons import StopReason
from publisher.status.publisher_status import LaneStatus

# The thresholds of deploy/monitoring/outbox.rules.yml.
LAGS_S = 300
LATE_S = 30
PROGRESS_UNREAD_S = 300
NEAR_LIMIT = 0.8
RESTARTS = 3
RETENTION_FACTOR = 1.5

NOT_SEEN = {
    "OutboxNoOwner": "The tables cannot tell a job that stands by from none: it shows as OutboxJobDown.",
    "OutboxBatchesHang": "The input that waits in Kafka is not in the tables.",
    "OutboxInputLags": "The input that waits in Kafka is not in the tables.",
    "OutboxRebuilds": "The input that the job reads again is only in its metrics.",
    "OutboxFenced": "Processes that take work from each other show only in the metrics.",
    "OutboxPostgresDisk": "Postgres does not know how much room its disk has.",
}
"""{alert whose condition is not in the tables: why}."""
SEEN_IN_PART = {
    "OutboxNotReady": "Known of a publisher that serves this page, of no other process.",
    "OutboxLate": "Of a sample of the last five minutes.",
    "OutboxRetentionBlocked": "By age; how long a partition has been detaching is only in the metrics.",
}
"""{alert whose condition is only partly in the tables: which part is}."""


class ConsoleFinding(NamedTuple):
    """A condition that needs a person. `level`: bad (delivery or the job is stalled), warning (somebody must decide), or note.

    `alert`: the alert with this condition, empty if there is none.
    """

    level: str
    text: str
    alert: str = ""
    command: str = ""
    page: str = ""


def findings(seen: Observed) -> list[ConsoleFinding]:
    """Return the findings, worst first."""
    found = [
        *_lanes(seen),
        *_services(seen),
        *_job(seen),
        *_ready(seen),
        *_late(seen),
        *_rows(seen),
        *_letters(seen),
    ]
    order = {"bad": 0, "warning": 1, "note": 2}
    return sorted(found, key=lambda each: order[each.level])


def not_observable(seen: Observed) -> dict[str, str]:
    """Return {alert that these observations cannot decide: why}."""
    found = dict(NOT_SEEN)
    hidden = "The console's login may not read it."
    if seen.services is None:
        found |= dict.fromkeys(("OutboxJobDown", "OutboxHeldBack", "OutboxPublisherDown"), hidden)
    if seen.failed_runs is None:
        found |= dict.fromkeys(("OutboxRestarts", "OutboxOpenNearLimit"), hidden)
    if seen.new_letters is None:
        found["OutboxDeadLetters"] = hidden
    if seen.end_to_delivered_s is None:
        found["OutboxLate"] = "No session of the last five minutes has a time to measure by."
    if seen.keep_s is None:
        found["OutboxRetentionBlocked"] = "[retention] keep_s is not set for this process."
    return found


def _lanes(seen: Observed) -> Iterable[ConsoleFinding]:
    for lane in seen.lanes:
        name = f"lane {lane.lane} of epoch {lane.epoch}"
        if lane.is_stopped:
            open_transaction = lane.stopped_why == StopReason.OPEN_TRANSACTION
            yield ConsoleFinding(
                "bad",
                f"{name} is stopped: {lane.stopped_why}",
                "OutboxOpenTransaction" if open_transaction else "OutboxLaneStopped",
                "publisher status",
                "lanes",
            )
        elif lane.abandoned:
            yield ConsoleFinding(
                "bad",
                f"{name}: {_count(lane.lag_rows)} rows wait and nobody delivers them",
                "OutboxLaneAbandoned",
                "publisher run",
                "lanes",
            )
        elif lane.is_retrying:
            yield ConsoleFinding(
                "warning", f"{name} is retrying", "OutboxLaneFails", "publisher status", "lanes"
            )
    age = max((lane.oldest_undelivered_s or 0 for lane in seen.lanes), default=0)
    if age > LAGS_S:
        yield ConsoleFinding(
            "warning",
            f"the oldest undelivered row is {age:,.0f} s old",
            "OutboxLags",
            "publisher status",
            "lanes",
        )
    if age > PROGRESS_UNREAD_S and _begin_nothing(seen):
        yield ConsoleFinding(
            "bad",
            "publishers hold lanes with work and begin no transaction",
            "OutboxProgressUnread",
            "publisher status",
            "lanes",
        )


def _begin_nothing(seen: Observed) -> bool:
    def is_at_work(lane: LaneStatus) -> bool:
        return lane.holder is not None and lane.lag_rows > 0 and not lane.waiting

    quiet = seen.delivered_s_ago is None or seen.delivered_s_ago > PROGRESS_UNREAD_S
    return quiet and any(map(is_at_work, seen.lanes)) and not any(lane.is_stopped for lane in seen.lanes)


def _services(seen: Observed) -> Iterable[ConsoleFinding]:
    if seen.services is None:
        yield ConsoleFinding(
            "note",
            "the console's login may not read runs, the writer and dead letters",
            command="GRANT outbox_auditor TO …; [console] dsn",
        )
        return
    for name, alert in (("publisher", "OutboxPublisherDown"), ("spark-job", "OutboxJobDown")):
        states = [each["state"] for each in seen.services if each["service"] == name]
        if "running" not in states:
            yield ConsoleFinding("bad", f"no {name} runs", alert, f"{name} run")
        elif "gone" in states:
            gone = [
                f"{each['host']}:{each['pid']}"
                for each in seen.services
                if (each["service"], each["state"]) == (name, "gone")
            ]
            yield ConsoleFinding(
                "warning", f"{name} {', '.join(gone[:5])} ended without saying so", command=f"{name} run"
            )
    for each in seen.services:
        if each["state"] == "withdrawn":
            yield ConsoleFinding(
                "warning",
                f"{each['service']} {each['host']}:{each['pid']} {each['detail']}",
                command=f"{each['service']} status",
            )
        if each["detail"] and each["state"] == "running":
            # Only the job has a reason in its heartbeat: why it is held back.
            yield ConsoleFinding(
                "warning",
                f"{each['service']} is {each['detail']}",
                "OutboxHeldBack",
                f"{each['service']} status",
            )


def _job(seen: Observed) -> Iterable[ConsoleFinding]:
    if seen.failed_runs is not None and seen.failed_runs > RESTARTS:
        yield ConsoleFinding(
            "warning",
            f"{seen.failed_runs} runs of the job failed within fifteen minutes",
            "OutboxRestarts",
            "spark-job status",
            "runs",
        )
    if seen.largest_open is not None and seen.largest_open > NEAR_LIMIT:
        yield ConsoleFinding(
            "warning",
            f"the open sessions of one partition have {seen.largest_open:.0%} of [session] max_open_bytes",
            "OutboxOpenNearLimit",
            "spark-job status",
            "batches",
        )


def _ready(seen: Observed) -> Iterable[ConsoleFinding]:
    for reason in seen.not_ready:
        yield ConsoleFinding(
            "warning", f"this publisher is not ready: {reason}", "OutboxNotReady", "publisher status", "lanes"
        )


def _late(seen: Observed) -> Iterable[ConsoleFinding]:
    if seen.end_to_delivered_s is not None and seen.end_to_delivered_s > LATE_S:
        yield ConsoleFinding(
            "warning",
            f"one session in a hundred was delivered {seen.end_to_delivered_s:,.0f} s or more after its end event",
            "OutboxLate",
            "publisher status",
            "batches",
        )


def _rows(seen: Observed) -> Iterable[ConsoleFinding]:
    for reason, count in seen.parked.items():
        if count:
            yield ConsoleFinding(
                "warning",
                f"{_count(count)} {'row is' if count == 1 else 'rows are'} parked: {reason}",
                "OutboxRowsParked",
                "publisher parked list",
                "parked",
            )
    for topic, since in seen.parked_topics.items():
        yield ConsoleFinding(
            "warning",
            f"rows for topic {topic} are parked while it does not exist, decided {since:%F %T} UTC",
            "OutboxRowsParked",
            "publisher parked list",
            "parked",
        )
    for replay_id in seen.interrupted_replays:
        yield ConsoleFinding(
            "warning",
            f"replay {replay_id} was interrupted",
            command=f"publisher replay go-on {replay_id}",
            page="replays",
        )
    kept, keep = seen.oldest_partition_s, seen.keep_s
    if kept is not None and keep is not None and kept > RETENTION_FACTOR * keep:
        yield ConsoleFinding(
            "warning",
            "partitions are kept for half as long again as [retention] keep_s says",
            "OutboxRetentionBlocked",
            "publisher retention plan",
            "storage",
        )
    if seen.retention_failed is not None:
        yield ConsoleFinding(
            "warning",
            f"the newest run of retention failed: {seen.retention_failed}",
            "OutboxRetentionBlocked",
            "publisher retention plan",
            "storage",
        )


def _letters(seen: Observed) -> Iterable[ConsoleFinding]:
    new = _listed(seen.new_letters or {})
    if new:
        yield ConsoleFinding(
            "warning",
            f"new dead letters within ten minutes: {new}",
            "OutboxDeadLetters",
            "spark-job dead-letters list",
            "letters",
        )
    every = _listed(seen.letters or {})
    if every:
        yield ConsoleFinding(
            "note", f"open dead letters: {every}", command="spark-job dead-letters list", page="letters"
        )


def _listed(letters: Mapping[str, int]) -> str:
    return ", ".join(f"{_count(count)} {reason}" for reason, count in letters.items() if count)


def _count(count: int) -> str:
    return f"{'at least ' if count >= COUNT_LIMIT else ''}{count:,}"
