"""python -m benchmarks.pipeline COMMAND: each starts its own servers. Run it alone on the machine."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.pipeline import cost, restarts, steady, throughput
from benchmarks.pipeline.checkout import OURS, Checkout, compared
from benchmarks.pipeline.traffic import preload
from benchmarks.support.report import Measured, Report, alternate, screen
from benchmarks.support.servers import Servers, started_servers
from benchmarks.transforms import TOPIC
from devstack.topics import create_topics
from examples.clickstream.generator import Shape, generate_blocks

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
Json = Annotated[bool, typer.Option("--json", help="Print one line of JSON instead of the table.")]
Page = Annotated[Path | None, typer.Option(help="Also put the table into this page.", exists=True)]
Key = Annotated[
    str, typer.Option(help="[session] key: the record's key, or `$.session_key`, read out of the JSON.")
]
Transform = Annotated[
    str, typer.Option(help="module:function of a transform that writes 20 outputs a session to bench.out.")
]

_INPUT = "bench.in"
_TRANSFORM = "benchmarks.transforms:twenty"


def _settings(key: str = "key", transform: str = _TRANSFORM) -> dict[str, str]:
    return {"SESSION__KEY": key, "TRANSFORM__FUNCTION": transform, "JOB__TRIGGER_MS": "0"}


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
                here, checkout, _settings(), rate=rate, partitions=partitions, warm_up_s=warm_up
            ) as flow:
                report.add(checkout.name, measure(flow))

        alternate(checkouts, rounds, once)


@app.command("throughput")
def measure_throughput(
    sessions: Annotated[int, typer.Option(min=2_000, help="Sessions of 102 events in the backlog.")] = 60_000,
    baseline: Baseline = None,
    rounds: Rounds = 1,
    partitions: Partitions = 4,
    max_events: Annotated[int, typer.Option(min=1, help="[job] max_events_per_batch.")] = 600_000,
    key: Key = "key",
    transform: Transform = _TRANSFORM,
    scan: Annotated[
        bool, typer.Option("--scan", help="Also a warm Spark scan of the topic that does nothing.")
    ] = False,
    page: Page = None,
    json: Json = False,
) -> None:
    """A backlog as fast as it goes: sessions a second, and CPU of JVM, Python workers and driver for each input event."""
    parameters: dict[str, object] = {"sessions": sessions, "partitions": partitions, "max_events": max_events}
    report = Report("throughput", parameters, throughput.LABELS)
    settings = _settings(key, transform) | {"JOB__MAX_EVENTS_PER_BATCH": str(max_events)}
    with started_servers() as here:
        events = _preload(here, sessions, partitions)
        if scan:
            parameters["events/s of a scan"] = round(events / throughput.scan_s(here, _INPUT))

        def measure(checkout: Checkout) -> None:
            report.add(checkout.name, throughput.measure(here, checkout, _INPUT, settings, sessions))

        alternate(compared(baseline), rounds, measure)
    report.finish(page, as_json=json)


@app.command("cost")
def measure_cost(
    sessions: Annotated[int, typer.Option(min=2_000, help="Sessions of 102 events in the backlog.")] = 60_000,
    spark_workers: Annotated[
        int, typer.Option(min=0, help="Also on a Spark cluster of so many workers of one core; 0: not.")
    ] = 0,
    rounds: Rounds = 1,
    partitions: Partitions = 4,
    page: Page = None,
    json: Json = False,
) -> None:
    """What a session costs each part: CPU and memory of job, publisher, Postgres and Kafka, WAL and outbox."""
    report = Report("cost", {"sessions": sessions, "partitions": partitions}, cost.LABELS)
    with started_servers() as here:
        _preload(here, sessions, partitions)

        def measure(workers: int) -> None:
            with cost.cluster(here, workers) as (placed, running):
                found = cost.measure(here, _INPUT, _settings() | placed, sessions, running)
            report.add(f"{workers} Spark workers" if workers else "one process", found)

        alternate([0, spark_workers] if spark_workers else [0], rounds, measure)
    report.finish(page, as_json=json)


def _preload(servers: Servers, sessions: int, partitions: int) -> int:
    """Make both topics and fill the input; return how many events it has."""
    create_topics(
        servers.bootstrap_servers, {_INPUT: (partitions, {}), TOPIC: (steady.OUTPUT_PARTITIONS, {})}
    )
    shape = Shape(sessions, sessions_per_second=2_000, start_ms=int(time.time() * 1000))
    events = preload(servers.bootstrap_servers, _INPUT, generate_blocks(shape))
    screen.print(f"preloaded {events:,} events")
    return events


@app.command("latency")
def measure_latency(
    rate: Rate = 100.0,
    seconds: Seconds = 60.0,
    warm_up: WarmUp = 30.0,
    baseline: Baseline = None,
    rounds: Rounds = 1,
    partitions: Partitions = 4,
    page: Page = None,
    json: Json = False,
) -> None:
    """From the broker's append of an end event to a read_committed consumer of the session's last output, at a steady rate."""
    report = Report(
        f"latency-{rate:g}",
        {"sessions/s": rate, "seconds": seconds, "partitions": partitions},
        steady.LATENCY,
    )
    _under_flow(
        report,
        compared(baseline),
        rounds,
        lambda flow: steady.measure_latency(flow, seconds),
        rate=rate,
        partitions=partitions,
        warm_up=warm_up,
    )
    report.finish(page, as_json=json)


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


@app.command("restart")
def measure_restart(
    kills: Annotated[int, typer.Option(min=1, help="How often the job is killed in a round.")] = 3,
    rate: Rate = 100.0,
    warm_up: WarmUp = 10.0,
    rounds: Rounds = 1,
    partitions: Partitions = 4,
    page: Page = None,
    json: Json = False,
) -> None:
    """From kill -9 of the job to the first new output: a standby continues, or the job is started again at once."""
    report = Report("restart", {"sessions/s": rate, "partitions": partitions}, restarts.UNDER_LOAD)
    with started_servers() as here:

        def measure(standby: bool) -> None:
            with steady.flowing(
                here, OURS, _settings(), rate=rate, partitions=partitions, warm_up_s=warm_up
            ) as flow:
                name = "a standby continues" if standby else "started again"
                report.add(name, restarts.measure_under_load(flow, kills, standby=standby))

        alternate([True, False], rounds, measure)
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
                here, OURS, _settings(), rate=rate, partitions=partitions, warm_up_s=warm_up
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
                _settings(),
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
