"""python -m benchmarks.suite COMMAND: each starts its own servers and adds rounds to a JSON file. Run it alone on the machine."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.suite import smoke
from benchmarks.suite.contenders import contenders
from benchmarks.suite.load.workload import Bench
from benchmarks.suite.measures import capacity, faults, growth, latency, outage, throughput
from benchmarks.suite.options import (
    Baseline,
    Folder,
    Names,
    Partitions,
    Rounds,
    Setting,
    command,
    names,
    numbers,
    results,
    settings,
)
from benchmarks.suite.report import page
from benchmarks.suite.results import PAGE, RESULTS
from benchmarks.support.report import screen
from benchmarks.support.servers import started_servers
from devstack.processes.errors import DevstackError

app = typer.Typer(add_completion=False, help=__doc__, no_args_is_help=True)


@contextmanager
def _bench() -> Iterator[Bench]:
    with started_servers() as servers:
        bench = Bench(servers)
        yield bench
    if bench.failed:
        screen.print(f"{len(bench.failed)} rounds failed, and are taken when this is called again:")
        for one in bench.failed:
            screen.print(f"  {one}", markup=False)
        raise typer.Exit(1)


@contextmanager
def _round(bench: Bench, what: str) -> Iterator[float]:
    """One round, which may fail without the others. Yields the load average before."""
    try:
        yield os.getloadavg()[0]
    except (DevstackError, RuntimeError, TimeoutError, ValueError) as error:
        bench.failed.append(f"{what}: {error}")
        screen.print(f"{what} failed: {error}", markup=False)


@app.command("throughput")
def measure_throughput(
    sessions: Annotated[int, typer.Option(min=30, help="Sessions of 102 events in the backlog.")] = 60_000,
    who: Names = "ours,flink-heap-1s,flink-rocksdb-1s,streams-rocksdb",
    rounds: Rounds = 5,
    partitions: Partitions = 4,
    baseline: Baseline = None,
    setting: Setting = None,
    scan: Annotated[
        bool,
        typer.Option("--scan", help="Also say how fast a warm Spark scan of the topic is that does nothing."),
    ] = False,
    folder: Folder = RESULTS,
) -> None:
    """A backlog, as fast as it goes, and what it costs each part: speed, CPU, memory, WAL; each output is checked."""
    given = settings(setting)
    parameters = {"sessions": sessions, "partitions": partitions, **given}
    kept = results(folder, "throughput", throughput.TITLE, throughput.LABELS, parameters)
    with _bench() as bench:
        chosen = {
            one.name: one for one in contenders(names(who), bench.servers, baseline=baseline, settings=given)
        }
        if scan:
            work = bench.preloaded(sessions, partitions)
            speed = work.events / throughput.scan_s(bench.servers, work.topic)
            screen.print(f"a warm scan by Spark that does nothing: {speed:,.0f} events/s")
        for name, _ in kept.missing(list(chosen), rounds):
            work = bench.preloaded(sessions, partitions)
            with _round(bench, name) as load:
                kept.add(name, throughput.measure(bench, chosen[name], work), load_before=load)


@app.command("latency")
def measure_latency(
    rates: Annotated[str, typer.Option(help="Sessions a second, with commas between.")] = "10,100,500,1000",
    seconds: Annotated[float, typer.Option(min=1, help="Measured at each rate.")] = 45.0,
    warm_up: Annotated[float, typer.Option(min=0, help="Before that, at the same rate.")] = 10.0,
    who: Names = "ours,flink-heap-1s,flink-heap-200ms",
    rounds: Rounds = 1,
    partitions: Partitions = 4,
    baseline: Baseline = None,
    setting: Setting = None,
    folder: Folder = RESULTS,
) -> None:
    """End event at the broker to outputs that a read_committed consumer has, at steady rates."""
    wanted = numbers(rates)
    given = settings(setting)
    parameters = {"seconds": seconds, "warm_up": warm_up, "partitions": partitions, **given}
    kept = results(folder, "latency", latency.TITLE, latency.LABELS, parameters)
    points = {f"{rate:g}": rate for rate in wanted}
    with _bench() as bench:
        chosen = {
            one.name: one for one in contenders(names(who), bench.servers, baseline=baseline, settings=given)
        }
        for number in range(1, rounds + 1):
            for name in list(chosen) if number % 2 else list(chosen)[::-1]:
                left = [point for point in points if kept.taken(name, point) < number]
                if not left:
                    continue
                with _round(bench, name) as load:
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
    attempt: Annotated[float, typer.Option(min=1, help="Seconds of the first try of a rate.")] = 15.0,
    proof: Annotated[float, typer.Option(min=1, help="Seconds for which a rate must be held.")] = 120.0,
    who: Names = "ours,flink-heap-1s",
    rounds: Rounds = 1,
    partitions: Partitions = 4,
    baseline: Baseline = None,
    setting: Setting = None,
    folder: Folder = RESULTS,
) -> None:
    """The highest rate held for two minutes with p99 below a second."""
    given = settings(setting)
    parameters = {
        "ladder": ladder,
        "warm_up": warm_up,
        "attempt": attempt,
        "proof": proof,
        "partitions": partitions,
        **given,
    }
    kept = results(folder, "capacity", capacity.TITLE, capacity.LABELS, parameters)
    with _bench() as bench:
        chosen = {
            one.name: one for one in contenders(names(who), bench.servers, baseline=baseline, settings=given)
        }
        for name, _ in kept.missing(list(chosen), rounds):
            with _round(bench, name) as load:
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
    kept = results(folder, "growth", growth.TITLE, growth.LABELS, {"smaller": smaller})
    sizes = growth.Sizes(factor=1 / smaller)
    with _bench() as bench:
        for number in range(1, rounds + 1):
            for point in sizes.names():
                if point.startswith(only) and kept.taken("ours", point) < number:
                    with _round(bench, point) as load:
                        for _, found in growth.measure(bench, sizes, {point}):
                            kept.add("ours", found, point, load_before=load)


@app.command("faults")
def measure_faults(
    kills: Annotated[
        int, typer.Option(min=1, help="How often each is killed in a run; each counts as a round.")
    ] = 3,
    rate: Annotated[float, typer.Option(min=1, help="Sessions a second meanwhile.")] = 100.0,
    who: Names = "ours,flink-heap-1s",
    partitions: Partitions = 4,
    folder: Folder = RESULTS,
) -> None:
    """From kill -9 of each part to the first new output."""
    kept = results(
        folder, "faults", faults.TITLE, faults.LABELS, {"sessions/s": rate, "partitions": partitions}
    )
    with _bench() as bench:
        for contender in contenders(names(who), bench.servers):
            for scenario in faults.scenarios(contender):
                left = kills - kept.taken(contender.name, scenario.name)
                if left < 1:
                    continue
                with _round(bench, f"{contender.name}, {scenario.name}") as load:
                    for found in faults.measure(
                        bench, contender, scenario, kills=left, rate=rate, partitions=partitions
                    ):
                        kept.add(contender.name, found, scenario.name, load_before=load)


@app.command("outage")
def measure_outage(
    timeout: Annotated[
        int, typer.Option(min=5, help="Seconds a peer's Kafka transactions may be open.")
    ] = 20,
    rate: Annotated[float, typer.Option(min=1, help="Sessions a second meanwhile.")] = 100.0,
    who: Names = "ours,flink-heap-1s",
    rounds: Rounds = 2,
    partitions: Partitions = 4,
    folder: Folder = RESULTS,
) -> None:
    """All of a contender is killed as it is about to commit, and is away for longer than its transactions may be open: what is lost?"""
    parameters = {"sessions/s": rate, "transaction timeout s": timeout, "partitions": partitions}
    kept = results(folder, "outage", outage.OUTAGE_TITLE, outage.OUTAGE, parameters)
    with _bench() as bench:
        chosen = {
            one.name: one for one in contenders(names(who), bench.servers, transaction_timeout_s=timeout)
        }
        for name, _ in kept.missing(list(chosen), rounds):
            with _round(bench, name) as load:
                found = outage.beyond_timeout(
                    bench, chosen[name], timeout_s=timeout, rate=rate, partitions=partitions
                )
                kept.add(name, found, load_before=load)


@app.command("catch-up")
def measure_catch_up(
    seconds: Annotated[float, typer.Option("--outage", min=1, help="Seconds of the outage.")] = 600.0,
    hurry: Annotated[
        float,
        typer.Option(min=1, help="The sessions of the outage arrive so many times as fast, to save time."),
    ] = 15.0,
    rate: Annotated[float, typer.Option(min=1, help="Sessions a second.")] = 100.0,
    who: Names = "ours,flink-heap-1s",
    rounds: Rounds = 1,
    partitions: Partitions = 4,
    folder: Folder = RESULTS,
) -> None:
    """How fast a contender catches up after an outage of ten minutes."""
    parameters = {"outage s": seconds, "sessions/s": rate, "arriving x": hurry, "partitions": partitions}
    kept = results(folder, "catch-up", outage.CATCH_UP_TITLE, outage.CATCH_UP, parameters)
    with _bench() as bench:
        chosen = {one.name: one for one in contenders(names(who), bench.servers)}
        for name, _ in kept.missing(list(chosen), rounds):
            with _round(bench, name) as load:
                found = outage.catch_up(
                    bench, chosen[name], outage_s=seconds, rate=rate, hurry=hurry, partitions=partitions
                )
                kept.add(name, found, load_before=load)


@app.command("smoke")
def run_smoke(folder: Annotated[Path, typer.Option("--results", help="Folder for what it writes.")]) -> None:
    """A minute: whether the machinery works, and nothing of speed."""
    folder.mkdir(parents=True, exist_ok=True)
    with _bench() as bench:
        for path in smoke.run(bench, folder, command()):
            print(path)


@app.command("report")
def render_report(
    target: Annotated[Path, typer.Option("--page", help="The page; made where it is not there.")] = PAGE,
    folder: Folder = RESULTS,
) -> None:
    """Render the page and its pictures from the JSON files."""
    for path in page.write(target, folder):
        print(path)


if __name__ == "__main__":
    app()
