"""What needs a person, out of what status, readiness and the tables say: the console's list of alerts. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from publisher.status.publisher_status import LaneStatus

LATE_S = 300.0
"""As the alert OutboxLags of docs/metrics.md."""
COUNT_LIMIT = 10_000


class ConsoleFinding(NamedTuple):
    """`level`: bad (delivery or the job stands still), warning (somebody must decide), or note."""

    level: str
    text: str
    command: str = ""
    page: str = ""


@dataclass(frozen=True, slots=True)
class Observed:
    """What the findings are made of. `services` and `letters` None: the login may not read them."""

    lanes: Sequence[LaneStatus]
    services: Sequence[Mapping[str, Any]] | None
    parked: Mapping[str, int]
    parked_topics: Mapping[str, datetime]
    letters: Mapping[str, int] | None
    interrupted_replays: Sequence[int]
    not_ready: Sequence[str] = ()
    """Why `/readyz` of the process that serves the console says 503."""


def findings(seen: Observed) -> list[ConsoleFinding]:
    """Return them, the worst first."""
    found = [*_lanes(seen.lanes), *_services(seen.services), *_ready(seen.not_ready), *_rows(seen)]
    order = {"bad": 0, "warning": 1, "note": 2}
    return sorted(found, key=lambda each: order[each.level])


def _lanes(lanes: Sequence[LaneStatus]) -> Iterable[ConsoleFinding]:
    for lane in lanes:
        name = f"lane {lane.lane} of epoch {lane.epoch}"
        if lane.stopped_reason is not None and not lane.stopped_reason.startswith("retrying:"):
            yield ConsoleFinding(
                "bad", f"{name} is stopped: {lane.stopped_why or 'unexpected'}", "publisher status", "lanes"
            )
        elif lane.stopped_reason is not None:
            yield ConsoleFinding("warning", f"{name} waits for a server", "publisher status", "lanes")
        elif lane.abandoned:
            rows = f"{'at least ' if lane.lag_rows >= COUNT_LIMIT else ''}{lane.lag_rows:,}"
            yield ConsoleFinding(
                "bad", f"{name}: {rows} rows wait and nobody delivers them", "publisher run", "lanes"
            )
    age = max((lane.oldest_undelivered_s or 0 for lane in lanes), default=0)
    if age > LATE_S:
        yield ConsoleFinding(
            "warning", f"the oldest undelivered row is {age:,.0f} s old", "publisher status", "lanes"
        )


def _services(services: Sequence[Mapping[str, Any]] | None) -> Iterable[ConsoleFinding]:
    if services is None:
        yield ConsoleFinding(
            "note",
            "the console's login may not read runs, the writer and dead letters",
            "GRANT outbox_auditor TO …; [console] dsn",
        )
        return
    for name, command in (("publisher", "publisher run"), ("spark-job", "spark-job run")):
        states = [each["state"] for each in services if each["service"] == name]
        if "running" not in states:
            yield ConsoleFinding("bad", f"no {name} runs", command)
        elif "gone" in states:
            gone = [
                f"{each['host']}:{each['pid']}"
                for each in services
                if (each["service"], each["state"]) == (name, "gone")
            ]
            yield ConsoleFinding("warning", f"{name} {', '.join(gone[:5])} ended without saying so", command)
    for each in services:
        if each["detail"] and each["state"] == "running":
            yield ConsoleFinding(
                "warning", f"{each['service']} is {each['detail']}", f"{each['service']} status"
            )


def _ready(reasons: Sequence[str]) -> Iterable[ConsoleFinding]:
    for reason in reasons:
        yield ConsoleFinding("warning", f"this publisher is not ready: {reason}", "publisher status", "lanes")


def _rows(seen: Observed) -> Iterable[ConsoleFinding]:
    for reason, count in seen.parked.items():
        if count:
            yield ConsoleFinding(
                "warning",
                f"{_count(count)} {'row is' if count == 1 else 'rows are'} parked: {reason}",
                "publisher parked list",
                "parked",
            )
    for topic, since in seen.parked_topics.items():
        yield ConsoleFinding(
            "warning",
            f"rows for topic {topic} are parked while it does not exist, decided {since:%F %T} UTC",
            "publisher parked list",
            "parked",
        )
    for replay_id in seen.interrupted_replays:
        yield ConsoleFinding(
            "warning",
            f"replay {replay_id} was interrupted",
            f"publisher replay go-on {replay_id}",
            "replays",
        )
    letters = {reason: count for reason, count in (seen.letters or {}).items() if count}
    if letters:
        listed = ", ".join(f"{_count(count)} {reason}" for reason, count in letters.items())
        yield ConsoleFinding("note", f"open dead letters: {listed}", "spark-job dead-letters list", "letters")


def _count(count: int) -> str:
    return f"{'at least ' if count >= COUNT_LIMIT else ''}{count:,}"
