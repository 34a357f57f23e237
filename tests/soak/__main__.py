"""`python -m tests.soak`: the pipeline under random kills of everything, for minutes or hours, with a verdict and a page."""

import faulthandler
import math
import os
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from tests.soak.chapter import DRAIN_S, Chapters
from tests.soak.faults import WEIGHTS, Faults
from tests.soak.page import Run, page
from tests.soak.stand import Stand, stand
from tests.support.pipeline import verdict

_CHAPTER_MIN = 5.0
_REPLAY = "replay"
_STEP_S = 900.0
"""A fault takes seconds, on a very busy machine minutes. What takes longer hangs: the run ends, and says where it was."""


def main(
    minutes: Annotated[
        float, typer.Option(min=0.5, help="Minutes of faults; draining and judging come on top.")
    ] = 10.0,
    seed: Annotated[int | None, typer.Option(help="Repeats a run's choices; default: a new one.")] = None,
    rate: Annotated[float, typer.Option(min=1, help="Sessions a second.")] = 20.0,
    publishers: Annotated[int, typer.Option(min=1, max=8, help="Publisher processes.")] = 3,
    without: Annotated[
        str, typer.Option(help=f"Faults to leave out, by comma: {', '.join([*WEIGHTS, _REPLAY])}.")
    ] = "",
    report: Annotated[Path | None, typer.Option(help="Write the page here, when all of it held.")] = None,
) -> None:
    """Run the soak. Exits 1, with the reason, when something was lost, repeated, reordered, left behind, or hangs."""
    chosen = int(time.time_ns() % 2**32) if seed is None else seed
    left_out = {name for name in without.split(",") if name}
    if unknown := left_out - {*WEIGHTS, _REPLAY}:
        raise typer.BadParameter(f"unknown: {', '.join(unknown)}", param_hint="--without")
    began, load = datetime.now(UTC), os.getloadavg()[0]
    _say(f"seed {chosen}, {minutes:g} minutes, {rate:g} sessions/s, {publishers} publishers")
    with (
        tempfile.TemporaryDirectory(prefix="spark-outbox-soak-") as folder,
        stand(Path(folder), publishers) as running,
    ):
        _say(f"everything is in {folder}")
        chapters = Chapters(running)
        _play(
            running,
            chapters,
            Faults(running, chosen, left_out),
            minutes,
            rate,
            chosen,
            replay=_REPLAY not in left_out,
        )
        _stop(running)
        run = _run(running, chapters, began, load, minutes, chosen, rate)
    faulthandler.cancel_dump_traceback_later()
    text = page(run)
    print(text)
    if report is not None:
        report.write_text(text, "utf-8")
        _say(f"written to {report}")


def _play(
    running: Stand,
    chapters: Chapters,
    faults: Faults,
    minutes: float,
    rate: float,
    seed: int,
    *,
    replay: bool,
) -> None:
    number = max(2, math.ceil(minutes / _CHAPTER_MIN))
    for service in running.services:
        service.start()
    for chapter in range(1, number + 1):
        faults.chapter_began = time.monotonic()
        with running.pipeline.load(seed + chapter * 1_000_003, sessions_per_second=rate) as feeder:
            _must_end_within(_STEP_S)
            _wait_for_a_batch(running, time.monotonic() + _STEP_S / 3)
            deadline = time.monotonic() + minutes * 60 / number
            while time.monotonic() < deadline:
                _must_end_within(_STEP_S)
                running.wait(min(faults.pause_s(), max(0.0, deadline - time.monotonic())))
                if faults.lets_it_move():
                    _wait_for_a_batch(running, deadline)
                name = faults.one()
                assert feeder.is_writing(), "Kafka refused the input: see above"
                _say(
                    f"chapter {chapter}/{number}: {name}; {feeder.written:,} records in, {len(running.pipeline.watcher.seen):,} events out"
                )
            if replay:
                _must_end_within(_STEP_S)
                _say(f"chapter {chapter}/{number}: {chapters.start_replay(kill_after_s=2.0)}")
        _must_end_within(DRAIN_S + _STEP_S)
        _say(f"chapter {chapter}/{number}: no more input, draining")
        expected = chapters.end()
        _say(
            f"chapter {chapter}/{number} held: {expected.sessions:,} sessions, {len(expected.outputs):,} events exactly once, in order"
        )


def _wait_for_a_batch(running: Stand, deadline: float) -> None:
    before = running.pipeline.batches()
    while time.monotonic() < deadline and running.pipeline.batches() == before:
        running.wait(0.5)


def _must_end_within(seconds: float) -> None:
    # The guardians end the servers and services with this process; what they wrote stays for a look.
    faulthandler.dump_traceback_later(seconds, exit=True)


def _stop(running: Stand) -> None:
    _must_end_within(_STEP_S)
    for service in running.services:
        code = service.terminate()
        assert code == 0, service.tail()
    verdict.assert_nothing_held(running.pipeline.dsn)
    running.resources.assert_flat()


def _run(
    running: Stand,
    chapters: Chapters,
    began: datetime,
    load: float,
    minutes: float,
    seed: int,
    rate: float,
) -> Run:
    (counts,) = running.pipeline.ask(
        "SELECT split_part(current_setting('server_version'), ' ', 1),"
        " (SELECT count(*) FROM outbox.batch), (SELECT count(*) FROM outbox.run),"
        " (SELECT count(*) FROM outbox.generation), (SELECT count(*) FROM outbox.lane_epoch),"
        " (SELECT count(*) FROM outbox.delivery WHERE kafka_offsets IS NULL)"
    )
    postgres, batches, starts, generations, lane_epochs, filled_in = counts
    return Run(
        began=began,
        ended=datetime.now(UTC),
        load=load,
        postgres=postgres,
        minutes=minutes,
        seed=seed,
        rate=rate,
        publishers=len(running.publishers),
        totals=chapters.totals,
        happened=running.happened,
        batches=batches,
        starts=starts,
        generations=generations,
        lane_epochs=lane_epochs,
        filled_in=filled_in,
        resources=running.resources,
        verdict="exactly once, in order",
    )


def _say(text: str) -> None:
    print(f"{datetime.now(UTC):%H:%M:%S} {text}", flush=True)


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
app.command()(main)

if __name__ == "__main__":
    app()
