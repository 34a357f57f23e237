"""`spark-job fork`: begin another outbox at an exported savepoint of this one."""

from pathlib import Path
from typing import Annotated

import typer

from service.commands.options import Config, Json
from service.commands.output import console, print_json
from service.settings import load_settings


def fork(
    file: Annotated[
        Path,
        typer.Argument(
            help="The file that `spark-job savepoint export` wrote.", show_default=False, dir_okay=False
        ),
    ],
    accept_data_loss: Annotated[
        bool,
        typer.Option(
            "--accept-data-loss", help="Begin although Kafka has deleted events that the savepoint needs."
        ),
    ] = False,
    accept_changed_assembly: Annotated[
        bool,
        typer.Option(
            "--accept-changed-assembly",
            help="Begin although the assembly rules differ from the savepoint's: they apply to later events.",
        ),
    ] = False,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Open the first generation of an empty outbox at an exported savepoint.

    The outbox is the one that the settings name; it must be migrated and empty. `spark-job run` continues from there.
    """
    from spark_job.failures.explain import explained
    from spark_job.recovery.findings import AcceptedRisks
    from spark_job.savepoints import preview, without_a_job
    from spark_job.savepoints.exported import ExportedSavepoint

    settings = load_settings(config)
    exported = ExportedSavepoint.read(file)
    accepted = AcceptedRisks(data_loss=accept_data_loss, changed_assembly=accept_changed_assembly)
    with explained():
        generation = without_a_job.fork(settings, exported, accepted, str(file))
    if as_json:
        print_json(preview.report(generation))
        return
    console().print(
        f"generation {generation.number} opened: {generation.explanation}\n"
        f"continues at {', '.join(generation.start.named(generation.topics))}; `spark-job run` continues with it"
    )
