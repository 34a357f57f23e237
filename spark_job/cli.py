"""`spark-job`: run the job and show its state."""

from typing import Annotated, Any

import typer

from service.commands.main import DeferredCommand, command_line, run_command
from service.commands.options import Config

app = command_line(
    "Kafka session events -> whole sessions -> transform -> Postgres outbox.",
    [
        DeferredCommand(
            "init",
            "Write a commented `outbox.toml`, a `transform.py` to start from (one total for each closed order), and its test.",
            "spark_job.commands.init:init",
        ),
        DeferredCommand(
            "try",
            "Run the current transform on the newest whole sessions of the input, and show its outputs beside those in the outbox.",
            "spark_job.trial.cli:try_transform",
        ),
        DeferredCommand(
            "diff",
            "Run the current transform on the sessions that closed since a batch, and show which outputs a reissue would change.",
            "spark_job.trial.diff:diff",
        ),
        DeferredCommand(
            "status",
            "Show who writes, where the ledger is, and what is open. Exits with 1 when no run is alive.",
            "spark_job.commands.status:status",
        ),
        DeferredCommand(
            "stop",
            "Stop the running job between two batches and wait until it has ended. If none runs, only the savepoint is made.",
            "spark_job.commands.stop:stop",
        ),
        DeferredCommand(
            "savepoint",
            "Named positions to go back to. Nothing is copied: one lives as long as Kafka keeps its events.",
            "spark_job.commands.savepoint:app",
        ),
        DeferredCommand(
            "fork",
            "Open the first generation of an empty outbox at an exported savepoint.",
            "spark_job.commands.fork:fork",
        ),
        DeferredCommand(
            "dead-letters",
            "List, show, retry or discard input that made no output.",
            "spark_job.dead_letters.cli:app",
        ),
        DeferredCommand(
            "clock",
            "Write a clock record into each quiet input partition, so that silence ends its sessions.",
            "spark_job.commands.clock:clock",
        ),
        DeferredCommand(
            "decode",
            "Print values in the wire format (hexadecimal, as psql shows bytes) as JSON, one on each line.",
            "spark_job.commands.decode:decode",
        ),
        DeferredCommand(
            "prepare",
            "Download the connector's jars and archive Spark's classes: each start takes some five seconds less.",
            "spark_job.commands.prepare:prepare",
        ),
    ],
)


def _flag(name: str, text: str) -> Any:
    return typer.Option(f"--{name}", help=text, envvar=f"OUTBOX_{name.upper().replace('-', '_')}")


@app.command()
def run(
    config: Config = None,
    take_over: Annotated[
        bool,
        typer.Option(
            "--take-over", help="Fence the run that owns this outbox now, even though its heartbeat is alive."
        ),
    ] = False,
    standby: Annotated[
        bool,
        _flag(
            "standby",
            "While another run owns this outbox, wait with Spark warm, and continue in its place as soon as it is gone.",
        ),
    ] = False,
    accept_outbox_behind: Annotated[
        bool,
        _flag(
            "accept-outbox-behind",
            "Continue although the database was restored or failed over to an older state: outputs that are in Kafka already go out "
            "again, with equal outbox-ids.",
        ),
    ] = False,
    accept_new_topic: Annotated[
        bool,
        _flag(
            "accept-new-topic",
            "Continue although an input topic was deleted and created again: sessions open in the old one are given up.",
        ),
    ] = False,
    accept_data_loss: Annotated[
        bool,
        _flag(
            "accept-data-loss",
            "Continue with what is left although Kafka has deleted input that is still needed.",
        ),
    ] = False,
    accept_truncation: Annotated[
        bool,
        _flag(
            "accept-truncation",
            "Continue at Kafka's end, with the next revision, although it lies below what was read: the topic has lost its end.",
        ),
    ] = False,
    accept_changed_assembly: Annotated[
        bool,
        _flag(
            "accept-changed-assembly",
            "Continue with changed assembly rules: open sessions stay open, and the new rules apply to later events.",
        ),
    ] = False,
) -> None:
    """Run the job until SIGTERM, SIGINT or `spark-job stop`, which stop it between two batches.

    Every start is the same: the outbox and Kafka determine where it resumes. The --accept flags (or OUTBOX_ACCEPT_...=1) allow what could
    lose or repeat something; without them the job stops, writes nothing, and reports what it found. A flag that is not needed changes
    nothing.
    """
    # Imported here: help and completion need neither Spark nor the settings.
    from service.kafka.transport import name_unprotected
    from service.observability import logs, tracing
    from service.settings import load_settings
    from spark_job import job
    from spark_job.recovery.findings import AcceptedRisks

    settings = load_settings(config)
    logs.configure(settings.log)
    name_unprotected(settings)
    accepted = AcceptedRisks(
        outbox_behind=accept_outbox_behind,
        new_topic=accept_new_topic,
        truncation=accept_truncation,
        data_loss=accept_data_loss,
        changed_assembly=accept_changed_assembly,
    )
    if standby and take_over:
        raise typer.BadParameter("--standby waits for the owner, --take-over fences it: give one of them")
    with tracing.sending(settings.tracing, "spark-job"):
        job.run(settings, accepted, take_over=take_over, standby=standby)


def main() -> None:
    """Run the command line."""
    run_command(app, "spark-job")
