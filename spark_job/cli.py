"""`spark-job`: run the job and ask how it is."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from db import logs
from db.command import run_command
from db.settings import load_settings
from spark_job import status as job_status

app = typer.Typer(
    help="Kafka session events -> whole sessions -> transform -> Postgres outbox.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

Config = Annotated[
    Path | None,
    typer.Option(
        "--config", "-c", help="Settings file. Default: $OUTBOX_CONFIG, else outbox.toml.", show_default=False
    ),
]


@app.command()
def run(
    config: Config = None,
    take_over: Annotated[
        bool,
        typer.Option(
            "--take-over", help="Fence the run that owns this outbox now, even though its heartbeat is alive."
        ),
    ] = False,
) -> None:
    """Run the job until SIGTERM or SIGINT, which stop it between two batches."""
    from spark_job import job  # Spark's imports cost seconds that `status` need not pay

    settings = load_settings(config)
    logs.configure(settings.log)
    job.run(settings, take_over=take_over)


@app.command()
def status(
    config: Config = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Show who writes, where the ledger is, and what is open. Exits with 1 when no run is alive."""
    settings = load_settings(config)
    found = job_status.read(settings)
    if as_json:
        print(json.dumps(found.to_json(), indent=2))
    else:
        Console().print(job_status.table(found))
    raise typer.Exit(0 if found.alive else 1)


def main() -> None:
    """Run the command line."""
    run_command(app, "spark-job")
