"""`spark-job stop`: end the running job between two batches, with a savepoint of its last commit if wanted."""

import time
from typing import Annotated, Any

import typer

from db import operations
from db.connection import Connection
from service.commands.options import Config, Json
from service.commands.output import console, print_json
from service.errors import SettingsError
from service.settings import load_settings
from spark_job.commands import request_client
from spark_job.commands.common import Timeout, errors, outbox, progress, writer_lock
from spark_job.ledger import runs, savepoints
from spark_job.ledger.savepoints import Savepoint

_ATTEMPT_S = 20.0  # longer than an attempt takes to connect and look for requests


def stop(
    savepoint: Annotated[
        str | None,
        typer.Option(
            "--savepoint",
            help="Make a savepoint of this name after the job's last commit.",
            show_default=False,
        ),
    ] = None,
    config: Config = None,
    timeout: Timeout = 300.0,
    as_json: Json = False,
) -> None:
    """Stop the running job between two batches and wait until it has ended. If none runs, only the savepoint is made."""
    settings = load_settings(config)
    if savepoint is not None:
        savepoints.check_name(savepoint)
    began = time.monotonic()
    with outbox(settings, "stop") as connection:
        if savepoint is not None and any(known.name == savepoint for known in savepoints.all(connection)):
            raise SettingsError(savepoints.in_use(savepoint))
        owner = request_client.living_owner(connection, settings.job)
        stopped = False
        last = runs.newest(connection)
        if owner is None and last is not None and last.failed:
            # Its process may be waiting for its next attempt, no longer than the strategy's longest delay.
            patience = min(timeout, max(settings.restart.delay_s, settings.restart.max_delay_s) + _ATTEMPT_S)
            with progress(
                connection, f"run {last.run_id} failed: looking whether its process starts again"
            ) as show:
                answer = request_client.ask_between_attempts(
                    connection,
                    last.run_id,
                    {"savepoint": savepoint},
                    settings=settings.job,
                    patience_s=patience,
                    waiting=show,
                )
            stopped = answer is not None
            owner = None if stopped else request_client.living_owner(connection, settings.job)
        if owner is not None and owner.run_id is not None:
            with progress(connection, f"waiting for run {owner.run_id} to stop") as show:
                answer = request_client.ask(
                    connection,
                    owner.run_id,
                    "stop",
                    {"savepoint": savepoint},
                    timeout_s=timeout,
                    waiting=show,
                )
                if answer is not None:
                    # Shown even if the command is interrupted, or gives up, while the process ends.
                    errors.print(f"the job has {answer}")
                left = max(1.0, timeout - (time.monotonic() - began))
                request_client.wait_for_end(connection, owner.run_id, timeout_s=left, waiting=show)
            stopped = answer is not None
        made = _savepoint(connection, savepoint, by_job=stopped)
        if stopped:
            text = (
                f"run {owner.run_id} has stopped between two batches"
                if owner
                else "the job has stopped between two attempts"
            )
        else:
            text = _nobody(connection)
    _print(text, made, stopped=stopped, as_json=as_json)


def _savepoint(connection: Connection, name: str | None, *, by_job: bool) -> Savepoint | None:
    if name is None:
        return None
    if by_job:
        return savepoints.get(connection, name)
    with writer_lock(connection):
        made = savepoints.create(connection, name)
        operations.record(connection, "spark-job stop", {"savepoint": name}, {"place": made.place})
    return made


def _nobody(connection: Connection) -> str:
    last = runs.newest(connection)
    if last is None or last.ended_at is None:
        return "no job runs"
    return f"no job runs; the last one ended {last.ended_at:%F %T} UTC: {last.ended_because}"


def _print(text: str, made: Savepoint | None, *, stopped: bool, as_json: bool) -> None:
    if as_json:
        found: dict[str, Any] = {
            "stopped": stopped,
            "text": text,
            "savepoint": made.to_json() if made else None,
        }
        print_json(found)
        return
    console().print(text)
    if made:
        console().print(f"savepoint {made.name!r}: {made.place}")
