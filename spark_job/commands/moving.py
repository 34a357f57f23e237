"""The course of a restore and of a rescale: say what it will do, ask, have it done, report."""

import json
from collections.abc import Mapping
from typing import Any

from db.errors import FencedError
from db.settings import Settings
from spark_job import asking, ledger, moves, opening
from spark_job.commands.common import confirm, errors, outbox, progress
from spark_job.commands.kafka import kafka_input
from spark_job.ledger import Generation
from spark_job.requests import Kind


def move(
    settings: Settings,
    kind: Kind,
    arguments: Mapping[str, Any],
    *,
    timeout_s: float,
    yes: bool,
    as_json: bool,
) -> None:
    """Open the generation: in the running job, between two batches, or by this command where none runs.

    Raises SettingsError, ContinuityError or NotDoneError where it is refused (nothing was changed then), UnavailableError where the job
    did not answer.
    """
    with outbox(settings, kind) as connection, kafka_input(settings) as kafka:
        topics = kafka.describe()
        foreseen = moves.preview(connection, settings, kafka, topics, kind, arguments)
        owner = asking.living_owner(connection, settings.job)
        for line in foreseen.lines(topics.names):
            errors.print(line)
        errors.print(
            f"Run {owner.run_id} (pid {owner.pid} on {owner.host}) does it between two batches and goes on."
            if owner
            else "No job runs: the next `spark-job run` goes on from there."
        )
        confirm(yes)
        owner = asking.living_owner(connection, settings.job)  # it may have been a long talk
        if owner and owner.run_id:
            with progress(connection, f"waiting for run {owner.run_id}") as show:
                asking.ask(connection, owner.run_id, kind, arguments, timeout_s=timeout_s, waiting=show)
            generation = ledger.newest_generation(connection)
            assert generation is not None
        else:
            generation = _open(settings, kind, arguments)
    _print(generation, foreseen, running=owner is not None, as_json=as_json)


def _open(settings: Settings, kind: Kind, arguments: Mapping[str, Any]) -> Generation:
    try:
        return opening.open_by_command(settings, kind, arguments)
    except FencedError as error:
        raise FencedError(
            "a job was started at this moment. Give the command again, and it asks that job."
        ) from error


def _print(generation: Generation, foreseen: moves.Move, *, running: bool, as_json: bool) -> None:
    if as_json:
        print(
            json.dumps(
                {**moves.report(generation), "running": running, "foreseen": foreseen.to_json()}, indent=2
            )
        )
        return
    where = ", ".join(generation.start.named(generation.topics))
    print(
        f"generation {generation.number} opened: {generation.explanation}\n"
        f"resumes at {where}; {generation.read_again:,} offsets are read again; revision {generation.revision}\n"
        + ("the job runs on with it" if running else "`spark-job run` goes on with it")
    )
