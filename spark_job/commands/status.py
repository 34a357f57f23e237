"""`spark-job status`: the state of the job, from what it has written to Postgres."""

import typer

from service.commands.options import Config, Json
from service.commands.output import console, print_json
from service.settings import load_settings
from spark_job.status import job_status


def status(
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Show who writes, where the ledger is, and what is open. Exits with 1 when no run is alive."""
    settings = load_settings(config)
    found = job_status.read(settings)
    if as_json:
        print_json(found.to_json())
    else:
        job_status.print_status(console(), found)
    raise typer.Exit(0 if found.alive else 1)
