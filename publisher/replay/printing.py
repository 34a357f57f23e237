"""Prints replays: the progress of a running replay, a table of replays, the details of one replay."""

import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import structlog
from rich.console import Console
from rich.progress import TextColumn

from publisher.protocol.replay_targets import ReplayTargets
from publisher.replay.delivery import Progressed
from publisher.replay.progress_record import ReplayProgress
from publisher.replay.selection import Count, ReplayRange
from publisher.replay.store import Replay
from service.commands.progress import progress_bar
from service.commands.tables import Table, print_fields

_log = structlog.get_logger()
_LOG_EVERY_S = 10.0
_SHOWN_KEYS = 100


@contextmanager
def progress_of(replay: Replay) -> Iterator[Progressed]:
    """Yield a callback for each transaction. It updates a bar on a terminal, or else writes a log line every ten seconds."""
    if not sys.stderr.isatty():
        yield _Lines(replay)
        return
    with progress_bar(TextColumn("events {task.fields[rate]}")) as bar:
        task = bar.add_task(
            f"replay {replay.replay_id}", total=replay.events_total, completed=replay.events_sent, rate=""
        )

        def show(done: ReplayProgress) -> None:
            speed = bar.tasks[0].speed
            bar.update(task, completed=done.events, rate="" if speed is None else f"{speed:,.0f}/s")

        yield show


class _Lines:
    def __init__(self, replay: Replay) -> None:
        self._replay = replay
        self._shown_at = time.monotonic()
        self._shown_events = replay.events_sent

    def __call__(self, done: ReplayProgress) -> None:
        now = time.monotonic()
        elapsed = now - self._shown_at
        if elapsed < _LOG_EVERY_S:
            return
        rate = (done.events - self._shown_events) / elapsed
        left = self._replay.events_total - done.events
        _log.info(
            "replay_progress",
            replay=self._replay.replay_id,
            events=done.events,
            of=self._replay.events_total,
            per_s=round(rate),
            left_s=round(left / rate) if rate > 0 else None,
        )
        self._shown_at, self._shown_events = now, done.events


@contextmanager
def counting(batches: ReplayRange) -> Iterator[Callable[[int], None]]:
    """Yield a callback for counted batches. It updates a bar on a terminal."""
    with progress_bar(TextColumn("batches")) as bar:
        task = bar.add_task("counting", total=batches.last - batches.first + 1)
        yield lambda looked_at: bar.advance(task, looked_at)


def count_table(found: Count, targets: ReplayTargets) -> Table:
    """Return a table of the outputs that would be sent, by output topic."""
    table = Table(["rows", "sessions", "events", "bytes", "output topic", "to"])
    for topic, part in sorted(found.topics.items()):
        table.add(part.rows, None, part.events, part.bytes, topic, targets.of(topic))
    table.add(found.rows, found.sessions, found.events, found.bytes, "all", None)
    return table


def duration_line(rate: int, seconds: float) -> str:
    """Return a line about how long a replay takes at its rate."""
    return f"at {rate:,} events a second it takes {timedelta(seconds=math.ceil(seconds))} or longer"


def replays_table(replays: Sequence[Replay]) -> Table:
    """Return a table of replays, one line for each."""
    table = Table(["id", "state", "batches", "sent", "events", "%", "events/s", "done in"])
    for one in replays:
        notes = [
            f"filter: {_filter(one)}",
            f"to {one.target_topic or 'the topics of the outputs'} at {one.target_servers}",
            *([f"held by {one.lease_holder}"] if one.held else []),
            *([] if one.reason is None else [one.reason]),
        ]
        table.add(
            str(one.replay_id),
            one.shown_state,
            f"{one.from_batch}-{one.to_batch}",
            one.events_sent,
            one.events_total,
            round(share(one)),
            None if one.measured_rate is None or not one.held else round(one.measured_rate),
            _wait(one.eta),
            note="\n".join(notes),
        )
    return table


def print_replay(out: Console, one: Replay, keys: Sequence[str] | None) -> None:
    """Print everything of one replay. `keys`: the session keys of its filter, None if it has none."""
    values = one.as_json() | {
        "topics": None if one.topics is None else ", ".join(one.topics),
        "requested": None,
        "filter": _filter(one),
        "events_sent": f"{one.events_sent:,} of {one.events_total:,} ({share(one):.0f} %)",
    }
    values |= {name: one.requested.get(name) for name in ("to_config", "to_servers")}
    fields = [(name.replace("_", " "), _cell(value)) for name, value in values.items()]
    shown = list(keys or ())[:_SHOWN_KEYS]
    fields += [("key", key) for key in shown]
    print_fields(out, fields)
    if keys is not None and len(keys) > len(shown):
        out.print(f"{len(keys) - len(shown):,} more keys: --json has them all")


def share(one: Replay) -> float:
    """Return the percentage of the events that were sent."""
    return 100.0 if one.events_total == 0 else 100.0 * one.events_sent / one.events_total


def _filter(one: Replay) -> str:
    parts = {name.replace("_", " "): value for name, value in one.requested.get("filter", {}).items()}
    return (
        ", ".join(f"{name} {' '.join(v) if isinstance(v, list) else v}" for name, v in parts.items()) or "all"
    )


def _cell(value: object) -> str | datetime | None:
    """Return ids as text, because a number would get separators between its digits."""
    return value if value is None or isinstance(value, datetime) else str(value)


def _wait(eta: datetime | None) -> str | None:
    if eta is None:
        return None
    return str(max(timedelta(), timedelta(seconds=round((eta - datetime.now(UTC)).total_seconds()))))
