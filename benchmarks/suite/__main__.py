"""python -m benchmarks.suite COMMAND: each starts its own servers and adds rounds to a JSON file. Run it alone on the machine."""

from pathlib import Path
from typing import Annotated

import typer

from benchmarks.suite import smoke
from benchmarks.suite.campaign import START_S, campaign
from benchmarks.suite.measures import (
    archive,
    capacity,
    consumer,
    faults,
    growth,
    latency,
    outage,
    small_batch,
    throughput,
)
from benchmarks.suite.options import Asked, Folder, Rounds, measurement, numbers
from benchmarks.suite.report import page
from benchmarks.suite.results import RESULTS
from benchmarks.suite.results import measurement as kept_rounds
from benchmarks.support.outbox import EVENTS
from benchmarks.support.rounds import announce
from benchmarks.support.servers import started_servers

app = typer.Typer(add_completion=False, help=__doc__, no_args_is_help=True)

Rate = Annotated[float, typer.Option(min=1, help="Sessions a second meanwhile.")]


@measurement(
    app,
    "throughput",
    who="ours,flink-heap-1s,flink-rocksdb-1s,streams-rocksdb,spark-stateful",
    rounds=5,
)
def measure_throughput(
    asked: Asked,
    sessions: Annotated[int, typer.Option(min=30, help="Sessions of 102 events in the backlog.")] = 60_000,
) -> None:
    """A backlog, as fast as it goes, and what it costs each part: speed, CPU, memory, WAL; each output is checked."""
    parameters = asked.parameters(sessions=sessions)
    with campaign(asked, "throughput", throughput.TITLE, throughput.LABELS, parameters) as taken:
        bench = taken.bench
        taken.each(
            lambda one: throughput.measure(bench, one, bench.preloaded(sessions, asked.partitions)),
            expected_s=START_S + throughput.expected_s(sessions),
        )


@measurement(app, "latency", who="ours,ours-balanced,ours-cheapest,flink-heap-1s,flink-heap-200ms")
def measure_latency(
    asked: Asked,
    rates: Annotated[str, typer.Option(help="Sessions a second, with commas between.")] = "10,100,1000",
    settle: Annotated[
        float, typer.Option(min=0, help="Seconds at 100 sessions a second before the first rate.")
    ] = 600.0,
    seconds: Annotated[float, typer.Option(min=1, help="Measured at each rate.")] = 45.0,
    warm_up: Annotated[float, typer.Option(min=0, help="Before that, at the same rate.")] = 10.0,
) -> None:
    """End event at the broker to outputs that a read_committed consumer has, and the cores it takes, at steady rates."""
    points = {f"{rate:g}": rate for rate in numbers(rates)}
    parameters = asked.parameters(settle=settle, seconds=seconds, warm_up=warm_up)
    with campaign(asked, "latency", latency.TITLE, latency.LABELS, parameters) as taken:
        taken.announce(
            lambda left: START_S + latency.expected_s(len(left), settle, warm_up, seconds), list(points)
        )
        for contender, left in taken.turns(list(points)):
            with taken.failures.tolerated(contender.name) as load:
                for rate, found in latency.measure(
                    taken.bench,
                    contender,
                    [points[point] for point in left],
                    taken.failures,
                    partitions=asked.partitions,
                    settle_s=settle,
                    warm_up_s=warm_up,
                    seconds=seconds,
                ):
                    taken.kept.add(contender.name, found, f"{rate:g}", load_before=load)


@measurement(app, "small-batch", who="ours")
def measure_small_batch(
    asked: Asked,
    rate: Annotated[float, typer.Option(min=1, help="Sessions a second.")] = 10.0,
    settle: Annotated[float, typer.Option(min=0, help="Seconds at that rate before it counts.")] = 120.0,
    seconds: Annotated[float, typer.Option(min=1, help="Measured.")] = 120.0,
) -> None:
    """What a batch of ours costs at a low rate, by part; with --baseline beside another checkout, in turn."""
    parameters = asked.parameters(settle=settle, seconds=seconds, **{"sessions/s": rate})
    with campaign(asked, "small-batch", small_batch.TITLE, small_batch.LABELS, parameters) as taken:
        taken.each(
            lambda one: small_batch.measure(
                taken.bench,
                one,
                partitions=asked.partitions,
                rate=rate,
                settle_s=settle,
                seconds=seconds,
            ),
            expected_s=START_S + small_batch.expected_s(settle, seconds),
        )


@measurement(app, "capacity", who="ours,flink-heap-1s")
def measure_capacity(
    asked: Asked,
    ladder: Annotated[
        str, typer.Option(help="Rates that are tried, ascending, sessions a second.")
    ] = "200,400,600,800,1000,1200,1400,1700,2000,2400,2800",
    warm_up: Annotated[float, typer.Option(min=0, help="Seconds at a rate before it counts.")] = 5.0,
    attempt: Annotated[float, typer.Option(min=1, help="Seconds of the first try of a rate.")] = 10.0,
    proof: Annotated[float, typer.Option(min=1, help="Seconds for which a rate must be held.")] = 120.0,
) -> None:
    """The highest rate held for two minutes with p99 below a second."""
    rates = numbers(ladder)
    parameters = asked.parameters(ladder=ladder, warm_up=warm_up, attempt=attempt, proof=proof)
    with campaign(asked, "capacity", capacity.TITLE, capacity.LABELS, parameters) as taken:
        taken.each(
            lambda one: capacity.measure(
                taken.bench,
                one,
                rates,
                partitions=asked.partitions,
                warm_up_s=warm_up,
                attempt_s=attempt,
                proof_s=proof,
            ),
            expected_s=START_S
            + capacity.expected_s(rates, warm_up_s=warm_up, attempt_s=attempt, proof_s=proof),
        )


@app.command("growth")
def measure_growth(
    smaller: Annotated[
        float, typer.Option(min=1, help="Backlogs of the whole path are so many times smaller.")
    ] = 1.0,
    only: Annotated[str, typer.Option(help="Points that are measured, by the start of their names.")] = "",
    rounds: Rounds = 1,
    folder: Folder = RESULTS,
) -> None:
    """What an event costs with more open sessions, events of a session, bytes of an event, partitions, work of the transform."""
    sizes = growth.Sizes(factor=1 / smaller)
    points = [point for point in sizes.names() if point.startswith(only)]
    asked = Asked(rounds=rounds, folder=folder)
    with campaign(asked, "growth", growth.TITLE, growth.LABELS, {"smaller": smaller}) as taken:
        taken.announce(lambda left: sum(map(growth.expected_s, left)), points)
        for contender, left in taken.turns(points):
            for point in left:
                with taken.failures.tolerated(point) as load:
                    found = growth.measure(taken.bench, sizes, point)
                    taken.kept.add(contender.name, found, point, load_before=load)


@measurement(app, "faults", who="ours,flink-heap-1s")
def measure_faults(
    asked: Asked,
    kills: Annotated[int, typer.Option(min=1, help="Kills of each part in a round; each counts.")] = 3,
    rate: Rate = 100.0,
) -> None:
    """From kill -9 of each part to the first new output."""
    parameters = asked.parameters(**{"sessions/s": rate})
    with campaign(asked, "faults", faults.TITLE, faults.LABELS, parameters) as taken:
        due = [
            (contender, scenario, left)
            for contender in taken.contenders.values()
            for scenario in faults.scenarios(contender)
            if (left := kills * asked.rounds - taken.kept.taken(contender.name, scenario.name)) > 0
        ]
        announce(sum(START_S + faults.expected_s(left) for *_, left in due), sum(left for *_, left in due))
        for contender, scenario, left in due:
            with taken.failures.tolerated(f"{contender.name}, {scenario.name}") as load:
                for found in faults.measure(
                    taken.bench, contender, scenario, kills=left, rate=rate, partitions=asked.partitions
                ):
                    taken.kept.add(contender.name, found, scenario.name, load_before=load)


@measurement(app, "outage", who="ours,flink-heap-1s", rounds=2)
def measure_outage(
    asked: Asked,
    timeout: Annotated[
        int, typer.Option(min=5, help="Seconds a peer's Kafka transactions may be open.")
    ] = 20,
    rate: Rate = 100.0,
) -> None:
    """All of a contender is killed as it is about to commit, and is away for longer than its transactions may be open: what is lost?"""
    parameters = asked.parameters(**{"sessions/s": rate, "transaction timeout s": timeout})
    with campaign(
        asked,
        "outage",
        outage.OUTAGE_TITLE,
        outage.OUTAGE,
        parameters,
        transaction_timeout_s=timeout,
    ) as taken:
        taken.each(
            lambda one: outage.beyond_timeout(
                taken.bench, one, timeout_s=timeout, rate=rate, partitions=asked.partitions
            ),
            expected_s=START_S + outage.expected_s(timeout),
        )


@measurement(app, "catch-up", who="ours,flink-heap-1s")
def measure_catch_up(
    asked: Asked,
    seconds: Annotated[float, typer.Option("--outage", min=1, help="Seconds of the outage.")] = 600.0,
    hurry: Annotated[
        float,
        typer.Option(min=1, help="The sessions of the outage arrive so many times as fast, to save time."),
    ] = 15.0,
    rate: Rate = 100.0,
) -> None:
    """How fast a contender catches up after an outage of ten minutes."""
    parameters = asked.parameters(**{"outage s": seconds, "sessions/s": rate, "arriving x": hurry})
    with campaign(asked, "catch-up", outage.CATCH_UP_TITLE, outage.CATCH_UP, parameters) as taken:
        taken.each(
            lambda one: outage.catch_up(
                taken.bench,
                one,
                outage_s=seconds,
                rate=rate,
                hurry=hurry,
                partitions=asked.partitions,
            ),
            expected_s=START_S + outage.expected_catch_up_s(seconds, rate, hurry),
        )


@app.command("archive")
def measure_archive(
    megabytes: Annotated[int, typer.Option(min=1, help="Values of the partition.")] = 200,
    s3: Annotated[str, typer.Option(help="s3://BUCKET/PREFIX; empty: a server that is started here.")] = "",
    endpoint: Annotated[str, typer.Option(help="Its server; empty: AWS.")] = "",
    rounds: Rounds = 1,
    folder: Folder = RESULTS,
) -> None:
    """How fast a partition is archived, into a folder and into S3."""
    parameters = {"megabytes": megabytes, "S3": s3 or "moto"}
    with (
        kept_rounds(folder, "archive", archive.TITLE, archive.LABELS, parameters) as (kept, failures),
        started_servers() as servers,
        archive.places(servers, s3, endpoint) as places,
    ):
        turns = [point for _, left in kept.missing(["ours"], rounds, list(places)) for point in left]
        announce(len(turns) * archive.expected_s(megabytes), len(turns))
        for point in turns:
            with failures.tolerated(point) as load:
                found = archive.measure(servers, places[point], megabytes)
                kept.add("ours", found, point, load_before=load)


@app.command("consumer")
def measure_consumer(
    events: Annotated[int, typer.Option(min=20, help="Outputs in the topic.")] = 1_000_000,
    rounds: Rounds = 1,
    folder: Folder = RESULTS,
) -> None:
    """What exactly once costs a consumer: ours, a bare one with the same inserts, and one that only reads."""
    events -= events % EVENTS
    with (
        kept_rounds(folder, "consumer", consumer.TITLE, consumer.LABELS, {"events": events}) as (
            kept,
            failures,
        ),
        started_servers() as servers,
    ):
        turns = [name for name, _ in kept.missing(list(consumer.CONTENDERS), rounds)]
        announce(len(turns) * consumer.expected_s(events), len(turns))
        topic = consumer.fill(servers, events)
        for name in turns:
            with failures.tolerated(name) as load:
                kept.add(name, consumer.measure(servers, name, topic, events), load_before=load)


@app.command("smoke")
def run_smoke(folder: Annotated[Path, typer.Option("--results", help="Folder for what it writes.")]) -> None:
    """A minute: whether the machinery works, and nothing of speed."""
    folder.mkdir(parents=True, exist_ok=True)
    with started_servers() as servers:
        for path in smoke.run(servers, folder):
            print(path)


@app.command("report")
def render_report(
    target: Annotated[
        Path | None,
        typer.Option(
            "--page",
            help="The page; made where it is not there. Without it: docs/performance.md for its own results, performance.md beside others.",
        ),
    ] = None,
    folder: Folder = RESULTS,
) -> None:
    """Render the page and its pictures from the JSON files."""
    for path in page.write(target or page.of(folder), folder):
        print(path)


if __name__ == "__main__":
    app()
