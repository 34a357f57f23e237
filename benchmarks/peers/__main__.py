"""python -m benchmarks.peers COMMAND: the contenders of the benchmark, one at a time. Each starts its own servers."""

import time
from typing import Annotated

import typer

from benchmarks.peers import registry
from benchmarks.suite.load.workload import Bench, Run, verdict_of
from benchmarks.support.rounds import screen
from benchmarks.support.servers import started_servers

app = typer.Typer(add_completion=False, help=__doc__, no_args_is_help=True)

_LONGEST_S = 600.0


@app.command("list")
def list_names() -> None:
    """Names of all contenders."""
    for name in registry.names():
        (one,) = registry.contenders([name])
        print(f"{name}: {one.name}")


@app.command("check")
def check(
    name: Annotated[str, typer.Argument(help="Of the contender: see `list`.")],
    sessions: Annotated[int, typer.Option(min=100, help="Sessions of 102 events in the backlog.")] = 2_000,
    partitions: Annotated[int, typer.Option(min=1, help="Partitions of the input topic.")] = 4,
    kills: Annotated[
        int, typer.Option(min=0, help="How often each part is killed by SIGKILL and started again.")
    ] = 0,
) -> None:
    """Run a contender on a backlog and compare its outputs with what they have to be: each once, for a read_committed consumer.

    Ends with 1 where they are not; of a contender that promises no more than at least once, where one is missing or strange.
    """
    try:
        (chosen,) = registry.contenders([name])
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    with started_servers() as servers:
        bench = Bench(servers)
        work = bench.preloaded(sessions, partitions)
        with bench.running(chosen, work.topic) as run:
            for number in range(1, kills + 1):
                _reach(run, sessions * number // (kills + 1))
                for part in run.contender.pids():
                    screen.print(f"  {run.watcher.sessions:,} sessions received: kill -9 of {part}")
                    run.contender.kill(part)
                    run.contender.start(part)
            _reach(run, sessions)
            seconds = time.time() - run.started_s
        verdict = verdict_of(servers.bootstrap_servers, work.ends)
    screen.print(f"{seconds:.1f} s from the start of the processes: {sessions / seconds:,.0f} sessions/s")
    print(f"{chosen.name}: {verdict}")
    # Only a contender that promises less says so.
    exact = getattr(chosen, "is_exactly_once", True)
    if not (verdict.is_exact if exact else verdict.has_all):
        raise typer.Exit(1)


def _reach(run: Run, sessions: int) -> None:
    if not run.wait_for(sessions, _LONGEST_S):
        raise RuntimeError(f"{run.watcher.sessions} of {sessions} sessions within {_LONGEST_S:g} s")


if __name__ == "__main__":
    app()
