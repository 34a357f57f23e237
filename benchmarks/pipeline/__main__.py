"""python -m benchmarks.pipeline COMMAND: each starts its own servers. Run it alone on the machine."""

from typing import Annotated

import typer

from benchmarks.pipeline import idle, restarts
from benchmarks.pipeline.checkout import OURS
from benchmarks.support.report import Json, Page, Report
from benchmarks.support.servers import started_servers

app = typer.Typer(add_completion=False, help=__doc__, no_args_is_help=True)

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


@app.command("idle")
def measure_idle(
    seconds: Seconds = 30.0,
    rate: Rate = 100.0,
    warm_up: WarmUp = 10.0,
    rounds: Rounds = 1,
    partitions: Partitions = 4,
    page: Page = None,
    json: Json = False,
) -> None:
    """CPU of a job that has nothing to do, after a while of sessions at a steady rate."""
    report = Report("idle", {"seconds": seconds, "partitions": partitions}, idle.IDLE)
    with started_servers() as here:
        for _ in range(rounds):
            with idle.flowing(
                here, OURS, _SETTINGS, rate=rate, partitions=partitions, warm_up_s=warm_up
            ) as flow:
                report.add(OURS.name, idle.measure_idle(flow, seconds))
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
        for _ in range(rounds):
            found = restarts.measure_held(
                here,
                OURS,
                _SETTINGS,
                sessions=sessions,
                events=events,
                span_s=span_s,
                partitions=partitions,
            )
            report.add(OURS.name, found)
    report.finish(page, as_json=json)


if __name__ == "__main__":
    app()
