"""How replays are shown to people: progress of a running one, tables of what is there."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import structlog
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from publisher.replay.delivery import Progressed
from publisher.replay.progress import ReplayProgress
from publisher.replay.selection import Count, Range
from publisher.replay.store import Replay

_log = structlog.get_logger()
_LOG_EVERY_S = 10.0


@contextmanager
def progress_of(replay: Replay) -> Iterator[Progressed]:
    """Yield what to tell of each transaction: a bar where a person looks at stderr, else a log line every ten seconds."""
    if not sys.stderr.isatty():
        yield _Lines(replay)
        return
    columns = (
        TextColumn(f"replay {replay.replay_id}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("events {task.fields[rate]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=replay.events_total, completed=replay.events_sent, rate="")

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
def counting(batches: Range) -> Iterator[Callable[[int], None]]:
    """Yield what to tell of counted batches: a bar where a person looks at stderr."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    columns = (
        TextColumn("counting"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("batches"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=batches.last - batches.first + 1)
        yield lambda looked_at: bar.advance(task, looked_at)


def count_table(found: Count, target_topic: str | None) -> Table:
    """Return what would go out, by output topic."""
    table = Table("output topic", "to", "rows", "sessions", "events", "bytes")
    for topic, part in sorted(found.topics.items()):
        table.add_row(
            topic, target_topic or topic, f"{part.rows:,}", "", f"{part.events:,}", f"{part.bytes:,}"
        )
    table.add_section()
    table.add_row(
        "all", "", f"{found.rows:,}", f"{found.sessions:,}", f"{found.events:,}", f"{found.bytes:,}"
    )
    return table


def replays_table(replays: list[Replay]) -> Table:
    """Return the replays, one line each."""
    table = Table(
        "id", "state", "batches", "filter", "target", "events", "", "events/s", "through in", "holder"
    )
    for one in replays:
        speed = "" if one.measured_rate is None or not one.held else f"{one.measured_rate:,.0f}"
        table.add_row(
            str(one.replay_id),
            one.shown_state,
            f"{one.from_batch:,}-{one.to_batch:,}",
            _filter(one),
            f"{one.target_topic or 'own topics'} at {one.target_servers}",
            f"{one.events_sent:,} of {one.events_total:,}",
            f"{share(one):.0f} %",
            speed,
            _wait(one.eta),
            one.lease_holder if one.held else "nobody",
        )
    return table


def replay_lines(one: Replay) -> Table:
    """Return everything of one replay, a line each."""
    table = Table(show_header=False)
    values = one.as_json() | {
        "events_sent": f"{one.events_sent:,} of {one.events_total:,} ({share(one):.0f} %)"
    }
    for name, value in values.items():
        table.add_row(name, "" if value is None else str(value))
    return table


def share(one: Replay) -> float:
    """Return how much is sent, in per cent."""
    return 100.0 if one.events_total == 0 else 100.0 * one.events_sent / one.events_total


def _filter(one: Replay) -> str:
    parts = one.requested.get("filter", {}).items()
    return ", ".join(f"{name} {' '.join(v) if isinstance(v, list) else v}" for name, v in parts) or "all"


def _wait(eta: datetime | None) -> str:
    if eta is None:
        return ""
    return str(max(timedelta(), timedelta(seconds=round((eta - datetime.now(UTC)).total_seconds()))))
