"""Runs a replay in the foreground for `start` and `go-on`, and prints how it ended."""

import os
from pathlib import Path

from publisher.commands.common import database
from publisher.delivery.context import Context
from publisher.replay import store
from publisher.replay.delivery import ReplayDelivery
from publisher.replay.printing import progress_of
from publisher.replay.runner import End, run
from publisher.replay.store import Replay
from service.commands.output import console, print_json
from service.errors import ContinuityError
from service.lifecycle import fault_points
from service.lifecycle.process import host_name
from service.lifecycle.shutdown import stop_on_signals
from service.observability import logs
from service.settings import Settings, load_settings


def begin(config: Path | None) -> Settings:
    """Return the settings. Also sets up the logs, and the faults of a test."""
    settings = load_settings(config)
    logs.configure(settings.log)
    fault_points.arm(settings.testing.fault_file)
    return settings


def work(target: Context, replay: Replay, as_json: bool, *, paused_too: bool, skip_refused: bool) -> None:
    """Send until the end, a signal or a request, and print where the replay ended. Raises ContinuityError if rows were missing."""
    with stop_on_signals(target.stop), progress_of(replay) as progressed:
        delivery = ReplayDelivery(
            target, replay, paused_too=paused_too, skip_refused=skip_refused, progressed=progressed
        )
        end = run(target, delivery, replay.replay_id)
    with database(target.settings, "replay") as connection:
        found = store.load(connection, replay.replay_id)
    if as_json:
        print_json(found.as_json())
    else:
        skipped = f", {found.rows_skipped:,} rows left out" if found.rows_skipped else ""
        state = end.value if end is not End.CHANGED else found.state
        again = (
            ""
            if found.state in ("done", "cancelled")
            else f". `publisher replay go-on {found.replay_id}` continues"
        )
        console().print(
            f"replay {found.replay_id} {state}: {found.events_sent:,} of {found.events_total:,} events sent{skipped}{again}",
        )
    if found.state == "done" and found.reason is not None:
        raise ContinuityError(found.reason)


def holder() -> str:
    """Return the name of this process for the lease."""
    return f"{host_name()}:{os.getpid()}"
