"""python -m benchmarks.peers COMMAND: the contenders of the benchmark, one at a time. Each starts its own servers."""

from typing import Annotated

import typer

from benchmarks.peers import registry
from benchmarks.peers.check import check
from benchmarks.support.report import screen
from benchmarks.support.servers import started_servers

app = typer.Typer(add_completion=False, help=__doc__, no_args_is_help=True)


@app.command("list")
def list_names() -> None:
    """Names of all contenders."""
    for name in registry.names():
        print(f"{name}: {registry.contender(name).name}")


@app.command("check")
def run_check(
    name: Annotated[str, typer.Argument(help="Of the contender: see `list`.")],
    sessions: Annotated[int, typer.Option(min=100, help="Sessions of 102 events in the backlog.")] = 2_000,
    partitions: Annotated[int, typer.Option(min=1, help="Partitions of both topics.")] = 4,
    kills: Annotated[
        int, typer.Option(min=0, help="How often each part is killed by SIGKILL and started again.")
    ] = 0,
    kill: Annotated[bool, typer.Option("--kill", help="The same as --kills 1.")] = False,
) -> None:
    """Run a contender on a backlog and compare its outputs with what they have to be: each once, for a read_committed consumer."""
    try:
        chosen = registry.contender(name)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    with started_servers() as servers:
        found = check(servers, chosen, sessions=sessions, partitions=partitions, kills=kills or int(kill))
    whole, warm = sessions / found.seconds, sessions * 2 / 3 / found.warm_seconds
    screen.print(
        f"{found.seconds:.1f} s from the start of the processes: {whole:,.0f} sessions/s; after a third: {warm:,.0f}"
    )
    print(f"{chosen.name}: {found.verdict}")
    if not found.verdict.is_exact:
        raise typer.Exit(1)


if __name__ == "__main__":
    app()
