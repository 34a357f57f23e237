"""The steps of a restore: show what it will do, ask for confirmation, open the generation or send the request, report."""

from service.commands.confirm import confirm
from service.commands.output import console, print_json
from service.errors import FencedError
from service.settings import Settings
from spark_job.commands import request_client
from spark_job.commands.common import errors, outbox, progress
from spark_job.input.topics import kafka_input
from spark_job.ledger.generations import Generation, newest_generation
from spark_job.recovery.savepoint_restore import Restore
from spark_job.savepoints import preview, without_a_job


def restore(
    settings: Settings, asked: Restore, *, timeout_s: float, dry_run: bool, yes: bool, as_json: bool
) -> None:
    """Open the generation: in the running job, between two batches, or by this command if none runs. `dry_run`: only show what it would do.

    Raises SettingsError, ContinuityError or NotDoneError if it is refused (nothing has changed then), UnavailableError if the job does not
    answer.
    """
    with outbox(settings, "restore") as connection, kafka_input(settings) as kafka:
        topics = kafka.describe()
        foreseen = preview.preview(connection, settings, kafka, topics, asked)
        owner = request_client.living_owner(connection, settings.job)
        told = console() if dry_run and not as_json else errors
        for line in foreseen.lines(topics.names):
            told.print(line)
        told.print(
            f"Run {owner.run_id} (pid {owner.pid} on {owner.host}) does it between two batches and continues."
            if owner
            else "No job runs: the next `spark-job run` continues from there."
        )
        if dry_run:
            if as_json:
                print_json({"dry_run": True, "running": owner is not None, "foreseen": foreseen.to_json()})
            return
        confirm(yes, "Continue?", "this changes what the job does next")
        owner = request_client.living_owner(
            connection, settings.job
        )  # read again: the confirmation may have taken long
        if owner and owner.run_id:
            arguments = {
                "savepoint": asked.savepoint,
                "policy": asked.policy,
                "accept_data_loss": asked.accepted.data_loss,
                "accept_changed_assembly": asked.accepted.changed_assembly,
            }
            with progress(connection, f"waiting for run {owner.run_id}") as show:
                request_client.ask(
                    connection, owner.run_id, "restore", arguments, timeout_s=timeout_s, waiting=show
                )
            generation = newest_generation(connection)
            assert generation is not None
        else:
            generation = _open(settings, asked)
    _print(generation, foreseen, running=owner is not None, as_json=as_json)


def _open(settings: Settings, asked: Restore) -> Generation:
    try:
        return without_a_job.restore(settings, asked)
    except FencedError as error:
        raise FencedError(
            "a job was started at this moment. Run the command again: it then sends the request to that job."
        ) from error


def _print(generation: Generation, foreseen: preview.Preview, *, running: bool, as_json: bool) -> None:
    if as_json:
        found = {**preview.report(generation), "running": running, "foreseen": foreseen.to_json()}
        print_json(found)
        return
    console().print(
        f"generation {generation.number} opened: {generation.explanation}\n"
        f"continues at {', '.join(generation.start.named(generation.topics))}; revision {generation.revision}\n"
        + ("the job runs on with it" if running else "`spark-job run` continues with it")
    )
