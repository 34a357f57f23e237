"""python -m benchmarks.suite COMMAND: each starts its own servers and adds rounds to a JSON file. Run it alone on the machine."""

import os
import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.suite import capacity, latency, throughput
from benchmarks.suite.contenders import contenders
from benchmarks.suite.results import RESULTS, Measured, Results, ResultsError
from benchmarks.suite.workload import Bench
from benchmarks.support.report import screen
from benchmarks.support.servers import started_servers

app = typer.Typer(add_completion=False, help=__doc__, no_args_is_help=True)

Names = Annotated[
    str,
    typer.Option(
        "--contenders", help="Who is measured, in turn: names with commas between (see docs/benchmarks.md)."
    ),
]
Rounds = Annotated[int, typer.Option(min=1, help="Rounds that there shall be; those in the file count.")]
Folder = Annotated[Path, typer.Option("--results", help="Folder of the JSON files.")]
Baseline = Annotated[
    Path | None,
    typer.Option(help="Another checkout (a git worktree) to measure in turn, as `before`.", exists=True),
]
Partitions = Annotated[int, typer.Option(min=1, help="Partitions of the input topic.")]
Numbers = Annotated[str, typer.Option(help="Numbers with commas between.")]


def command() -> list[str]:
    """How this process was called, as it can be called again."""
    return ["python", "-m", "benchmarks.suite", *map(shlex.quote, sys.argv[1:])]


def numbers(text: str) -> list[float]:
    """Numbers with commas between."""
    return [float(one) for one in text.split(",")]


def names(text: str) -> list[str]:
    """Names with commas between."""
    return [one.strip() for one in text.split(",") if one.strip()]


def results(
    folder: Path, name: str, title: str, labels: Mapping[str, str], parameters: Mapping[str, object]
) -> Results:
    """The file of a measurement; a usage error where it cannot be continued."""
    try:
        return Results(
            folder / f"{name}.json", title=title, labels=labels, parameters=parameters, command=command()
        )
    except ResultsError as error:
        raise typer.BadParameter(str(error)) from None


@contextmanager
def _bench() -> Iterator[Bench]:
    with started_servers() as servers:
        yield Bench(servers)


@app.command("throughput")
def measure_throughput(
    sessions: Annotated[int, typer.Option(min=30, help="Sessions of 102 events in the backlog.")] = 60_000,
    who: Names = "ours,flink-heap-1s,flink-rocksdb-1s,kafka-streams,spark",
    rounds: Rounds = 5,
    partitions: Partitions = 4,
    baseline: Baseline = None,
    folder: Folder = RESULTS,
) -> None:
    """A backlog, as fast as it goes, and what it costs each part: speed, CPU, memory, WAL; each output is checked."""
    parameters = {"sessions": sessions, "partitions": partitions}
    kept = results(folder, "throughput", throughput.TITLE, throughput.LABELS, parameters)
    with _bench() as bench:
        chosen = {one.name: one for one in contenders(names(who), bench.servers, baseline)}
        for name, _ in kept.missing(list(chosen), rounds):
            work = bench.preloaded(sessions, partitions)
            load = os.getloadavg()[0]
            kept.add(name, throughput.measure(bench, chosen[name], work), load_before=load)


@app.command("latency")
def measure_latency(
    rates: Annotated[str, typer.Option(help="Sessions a second, with commas between.")] = "10,100,500,1000",
    seconds: Annotated[float, typer.Option(min=1, help="Measured at each rate.")] = 60.0,
    warm_up: Annotated[float, typer.Option(min=0, help="Before that, at the same rate.")] = 10.0,
    who: Names = "ours,flink-heap-1s,flink-heap-200ms",
    rounds: Rounds = 1,
    partitions: Partitions = 4,
    baseline: Baseline = None,
    folder: Folder = RESULTS,
) -> None:
    """End event at the broker to outputs that a read_committed consumer has, at steady rates."""
    wanted = numbers(rates)
    parameters = {"seconds": seconds, "warm_up": warm_up, "partitions": partitions}
    kept = results(folder, "latency", latency.TITLE, latency.LABELS, parameters)
    points = {f"{rate:g}": rate for rate in wanted}
    with _bench() as bench:
        chosen = {one.name: one for one in contenders(names(who), bench.servers, baseline)}
        for number in range(1, rounds + 1):
            for name in list(chosen) if number % 2 else list(chosen)[::-1]:
                left = [point for point in points if kept.taken(name, point) < number]
                if not left:
                    continue
                load = os.getloadavg()[0]
                found = latency.measure(
                    bench,
                    chosen[name],
                    [points[point] for point in left],
                    partitions=partitions,
                    warm_up_s=warm_up,
                    seconds=seconds,
                )
                for point in left:
                    if points[point] in found:
                        kept.add(name, found[points[point]], point, load_before=load)


@app.command("capacity")
def measure_capacity(
    ladder: Annotated[
        str, typer.Option(help="Rates that are tried, ascending, sessions a second.")
    ] = "200,400,600,800,1000,1200,1400,1700,2000,2400,2800",
    warm_up: Annotated[float, typer.Option(min=0, help="Seconds at a rate before it counts.")] = 10.0,
    attempt: Annotated[float, typer.Option(min=1, help="Seconds of the first try of a rate.")] = 20.0,
    proof: Annotated[float, typer.Option(min=1, help="Seconds for which a rate must be held.")] = 120.0,
    who: Names = "ours,flink-heap-1s",
    rounds: Rounds = 1,
    partitions: Partitions = 4,
    baseline: Baseline = None,
    folder: Folder = RESULTS,
) -> None:
    """The highest rate held for two minutes with p99 below a second."""
    parameters = {
        "ladder": ladder,
        "warm_up": warm_up,
        "attempt": attempt,
        "proof": proof,
        "partitions": partitions,
    }
    kept = results(folder, "capacity", capacity.TITLE, capacity.LABELS, parameters)
    with _bench() as bench:
        chosen = {one.name: one for one in contenders(names(who), bench.servers, baseline)}
        for name, _ in kept.missing(list(chosen), rounds):
            load = os.getloadavg()[0]
            found = capacity.measure(
                bench,
                chosen[name],
                numbers(ladder),
                partitions=partitions,
                warm_up_s=warm_up,
                attempt_s=attempt,
                proof_s=proof,
            )
            kept.add(name, found, load_before=load)


if __name__ == "__main__":
    app()
