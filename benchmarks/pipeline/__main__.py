"""python -m benchmarks.pipeline COMMAND: each starts its own servers. Run it alone on the machine."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.pipeline import restarts, steady
from benchmarks.pipeline.checkout import OURS, Checkout, compared
from benchmarks.support.report import Json, Measured, Page, Report, alternate
from benchmarks.support.servers import started_servers

app = typer.Typer(add_completion=False, help=__doc__, no_args_is_help=True)

Baseline = Annotated[
    Path | None,
    typer.Option(help="Another checkout (a git worktree) to measure in turn with this one.", exists=True),
]
Rounds = Annotated[int, typer.Option(min=1, help="How often each is measured; the medians count.")]
Partitions = Annotated[int, typer.Option(min=1, help="Partitions of the input topic.")]
Rate = Annotated[float, typer.Option(min=1, help="Sessions a second; a session has 102 events.")]
Seconds = Annotated[float, typer.Option(min=1, help="How long is measured.")]
WarmUp = Annotated[float, typer.Option(min=0, help="Seconds after the first output that do not count.")]

_SETTINGS = {
    "SESSION__KEY": "key",
    "TRANSFORM__FUNCTION": "benchmarks.transforms:twenty",
    "JOB__TRIGGER_MS": "0",
}


def _under_flow(
    report: Report,
    checkouts: Sequence[Checkout],
    rounds: int,
    measure: Callable[[steady.Flow], Measured],
    *,
    rate: float,
    partitions: int,
    warm_up: float,
) -> None:
    """Measure each of the checkouts under a steady flow of sessions."""
    with started_servers() as here:

        def once(checkout: Checkout) -> None:
            with steady.flowing(
                here, checkout, _SETTINGS, rate=rate, partitions=partitions, warm_up_s=warm_up
            ) as flow:
                report.add(checkout.name, measure(flow))

        alternate(checkouts, rounds, once)


@app.command("idle")
def measure_idle(
    seconds: Seconds = 30.0,
    rate: Rate = 100.0,
    warm_up: WarmUp = 10.0,
    baseline: Baseline = None,
    rounds: Rounds = 1,
    partitions: Partitions = 4,
    page: Page = None,
    json: Json = False,
) -> None:
    """CPU of a job that has nothing to do, after a while of sessions at a steady rate."""
    report = Report("idle", {"seconds": seconds, "partitions": partitions}, steady.IDLE)
    _under_flow(
        report,
        compared(baseline),
        rounds,
        lambda flow: steady.measure_idle(flow, seconds),
        rate=rate,
        partitions=partitions,
        warm_up=warm_up,
    )
    report.finish(page, as_json=json)


@app.command("partitions")
def measure_partitions(
    few: Partitions = 4,
    many: Partitions = 200,
    rate: Rate = 20.0,
    seconds: Seconds = 20.0,
    warm_up: WarmUp = 15.0,
    rounds: Rounds = 1,
    page: Page = None,
    json: Json = False,
) -> None:
    """The same small flow over few and over many input partitions: what a batch takes."""
    report = Report("partitions", {"sessions/s": rate, "seconds": seconds}, steady.BATCHES)
    with started_servers() as here:

        def measure(partitions: int) -> None:
            with steady.flowing(
                here, OURS, _SETTINGS, rate=rate, partitions=partitions, warm_up_s=warm_up
            ) as flow:
                report.add(f"{partitions} partitions", steady.measure_latency(flow, seconds))

        alternate([many, few], rounds, measure)
    report.finish(page, as_json=json)


@app.command("held")
def measure_held(
    sessions: Annotated[
        int, typer.Option(min=1_000, help="Sessions that are open at the same time.")
    ] = 18_000,
    events: Annotated[int, typer.Option(min=2, help="Events of each.")] = 50,
    span_s: Annotated[int, typer.Option(min=60, help="Seconds of event time over which they begin.")] = 1_800,
    rounds: Rounds = 1,
    partitions: Partitions = 4,
    page: Page = None,
    json: Json = False,
) -> None:
    """Restarts with sessions of half an hour open: with the cache of open sessions, and without."""
    report = Report(
        "held", {"open sessions": sessions, "begun over s": span_s, "partitions": partitions}, restarts.HELD
    )
    with started_servers() as here:

        def measure(checkout: Checkout) -> None:
            found = restarts.measure_held(
                here,
                checkout,
                _SETTINGS,
                sessions=sessions,
                events=events,
                span_s=span_s,
                partitions=partitions,
            )
            report.add(checkout.name, found)

        alternate([OURS], rounds, measure)
    report.finish(page, as_json=json)


if __name__ == "__main__":
    app()
