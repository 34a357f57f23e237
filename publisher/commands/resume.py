"""`publisher resume`: lets lanes continue that stopped because the histories of Kafka and Postgres differ."""

from dataclasses import asdict
from typing import Annotated, Any

import psycopg
import typer
from confluent_kafka import KafkaException

from contract.cursor import Cursor
from publisher.commands.common import database
from publisher.kafka.clients import check_options
from publisher.kafka.topics import Topics
from publisher.protocol.remediation import replaced_topic, replay_command
from publisher.resume.decision import Way
from publisher.resume.planner import LanePlan, Planner, ResumePlan, ResumeRequest
from publisher.resume.rebinding import AcceptedRebinding
from publisher.resume.resume import Resume
from service.commands.confirm import confirm
from service.commands.options import Config, DryRun, Json, Yes
from service.commands.output import error_console, print_json
from service.commands.progress import progress_bar
from service.commands.tables import Table
from service.errors import SettingsError, UnavailableError
from service.kafka import client as kafka_client
from service.lifecycle import fault_points
from service.settings import load_settings


def resume(
    way: Annotated[
        Way, typer.Option("--from", help="Where to continue; `--from batch N` sends from batch N on.")
    ],
    batch: Annotated[int | None, typer.Argument(help="N, with `--from batch N`.", show_default=False)] = None,
    config: Config = None,
    lane: Annotated[list[int] | None, typer.Option("--lane", help="Only this lane; may be repeated.")] = None,
    accept_new_cluster: Annotated[
        bool,
        typer.Option(
            "--accept-new-cluster", help="Deliver to the Kafka cluster that bootstrap_servers leads to."
        ),
    ] = False,
    accept_new_topic: Annotated[
        list[str] | None,
        typer.Option(
            "--accept-new-topic",
            metavar="NAME",
            help="Deliver to this output topic, though it was created again.",
        ),
    ] = None,
    accept_new_server: Annotated[
        bool,
        typer.Option("--accept-new-server", help="Publish from the Postgres server that the dsn leads to."),
    ] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Let stopped lanes continue from Kafka's or Postgres' position, or from a batch on.

    kafka: after the newest Kafka transaction that this ledger also has; repeats the least, skips nothing. mirror: after what
    Postgres recorded as delivered. batch N: from batch N on. beginning: from the first batch of the lane epoch. Says first, for
    each lane, how many events it sends again and skips. A running publisher continues by itself.

    Exit codes: 0 done, 1 not confirmed, 2 wrong use or nobody to ask (say --yes), 4 another resume is at work, 5 this `--from` cannot be
    used here, a lane's new plan was declined, or the lanes were changed, 6 Postgres or Kafka did not answer (run the command again).
    """
    if (way is Way.BATCH) != (batch is not None):
        raise SettingsError("N is required with `--from batch` and not allowed with any other value")
    settings = load_settings(config)
    fault_points.arm(settings.testing.fault_file)
    accepted = AcceptedRebinding(accept_new_cluster, accept_new_server, tuple(accept_new_topic or ()))
    request = ResumeRequest(way, batch or 0, tuple(lane or ()), accepted)
    check_options(settings.kafka, settings.publisher.transaction_timeout_ms)
    topics = Topics(
        kafka_client.admin_client(settings.kafka), timeout_s=settings.kafka.request_timeout_s, create=False
    )
    try:
        with database(settings, "resume") as connection:
            plan = _look(Planner(connection, settings, topics), request)
            _show(plan)
            if not dry_run and not plan.changes_nothing:
                confirm(yes, "Continue?", "this changes what is sent next")
                Resume(connection, settings, topics).act(plan, lambda now: _moved(now, yes), _done)
    except (psycopg.OperationalError, KafkaException) as error:
        why = (
            kafka_client.no_answer(settings.kafka, error.args[0])
            if isinstance(error, KafkaException)
            else f"Postgres did not answer: {str(error).strip()}"
        )
        raise UnavailableError(f"{why}. Lanes that were moved stay moved; run the command again") from error
    if as_json:
        print_json(_as_json(plan, done=not dry_run and not plan.changes_nothing))


def _look(planner: Planner, request: ResumeRequest) -> ResumePlan:
    with progress_bar() as bar:
        task = bar.add_task("reading lanes")
        return planner.plan(request, lambda done, total: bar.update(task, completed=done, total=total))


def _show(plan: ResumePlan) -> None:
    out = error_console()
    for line in _binding(plan):
        out.print(line)
    if plan.in_step:
        out.print(f"{len(plan.in_step)} lanes are in step with Kafka and are left as they are")
    if not plan.lanes:
        out.print("No lane has to move." if plan.binding.changed else "Nothing to do.")
        return
    table = Table(["epoch/lane", "Kafka", "Postgres", "ledger", "continues after"])
    for lane in plan.lanes:
        found = lane.move.found
        table.add(
            f"{found.epoch.epoch}/{found.lane}",
            "nothing" if found.newest is None else f"{found.newest.cursor}, seq {found.newest.seq}",
            f"{found.postgres}, seq {found.mirror.seq}",
            str(Cursor(plan.ledger.end if found.epoch_end is None else found.epoch_end)),
            str(lane.move.to),
            note=", ".join(filter(None, [_counted(lane), _foreign(lane)])),
        )
    table.print(out)
    for line in _sums(plan):
        out.print(line)


def _binding(plan: ResumePlan) -> list[str]:
    binding, found = plan.binding, plan.binding.found
    lines = [f"outbox {found.outbox_uuid} -> Kafka cluster {binding.cluster_id}"]
    if found.cluster_id not in (None, binding.cluster_id):
        lines.append(f"the previous cluster was {found.cluster_id}; restart `publisher run` afterwards")
    if found.system_identifier != binding.system_identifier:
        lines.append(
            f"Postgres server changed from {found.system_identifier} to {binding.system_identifier}; restart `publisher run` afterwards"
        )
    elif found.timeline != binding.timeline:
        lines.append(f"Postgres timeline changed from {found.timeline} to {binding.timeline}")
    for name, topic_id in binding.topic_ids.items():
        if found.output_topic_ids.get(name) != topic_id:
            lines.append(
                f"topic {name} changed from {found.output_topic_ids.get(name)} to {topic_id}; "
                f"`{replay_command(name)}` sends again what the old one had"
            )
    for name in binding.replaced:
        lines.append(f"topic {name} is not the previous one. {replaced_topic(name)}")
    return lines


def _sums(plan: ResumePlan) -> list[str]:
    again, skipped, trusted = (
        _sum(pairs)
        for pairs in zip(*((lane.again, lane.skipped, lane.trusted) for lane in plan.lanes), strict=True)
    )
    lines = [
        f"sent again: {_words(again)}, with the same outbox-ids",
        f"skipped, never sent: {_words(skipped)}",
    ]
    if trusted != (0, 0):
        lines.append(
            f"left out because Postgres recorded them as delivered, though Kafka does not show it: {_words(trusted)}"
        )
    unknown = _sum([(lane.move.unknown.sessions, lane.move.unknown.events) for lane in plan.lanes])
    if unknown != (0, 0):
        lines.append(
            f"Kafka has {_words(unknown)} that were sent after the two histories diverged. They are sent again, with the same "
            "outbox-ids, as far as they are in this ledger or the job makes them again"
        )
    if plan.dropped:
        ranges = ", ".join(f"{first} to {last}" for first, last in plan.dropped)
        lines.append(f"retention has dropped the rows of batches {ranges}: they are not sent")
    if plan.request.way is Way.BEGINNING:
        lines.append(f"the beginning is batch {plan.first_batch}")
    return lines


def _moved(now: LanePlan, yes: bool) -> bool:
    """Print a lane's new plan; return whether to continue with it."""
    found = now.move.found
    error_console().print(
        f"lane {found.lane} of epoch {found.epoch.epoch} moved meanwhile: continues after {now.move.to}, sends again "
        f"{_words(now.again)}, skips {_words(now.skipped)}",
        highlight=False,
    )
    # If `yes` is not set, a person is at the terminal: otherwise `confirm` has refused before.
    return yes or typer.confirm("Continue with this lane, too?", err=True)


def _done(lane: LanePlan) -> None:
    error_console().print(
        f"lane {lane.move.found.lane} of epoch {lane.move.found.epoch.epoch} continues after {lane.move.to}",
        highlight=False,
    )


def _sum(pairs: Any) -> tuple[int, int]:
    listed = list(pairs)
    return sum(pair[0] for pair in listed), sum(pair[1] for pair in listed)


def _counted(lane: LanePlan) -> str:
    counts = {"sends again": lane.again, "skips": lane.skipped, "trusts Postgres for": lane.trusted}
    return ", ".join(f"{what} {pair[1]:,} events" for what, pair in counts.items() if pair != (0, 0))


def _foreign(lane: LanePlan) -> str:
    foreign = lane.move.found.foreign
    return "" if foreign is None else f"ignores a newer record in Kafka that another program wrote: {foreign}"


def _words(pair: tuple[int, int]) -> str:
    return f"{pair[1]:,} events of {pair[0]:,} sessions"


def _as_json(plan: ResumePlan, *, done: bool) -> dict[str, Any]:
    names = ("sessions", "events")
    return {
        "done": done,
        "request": str(plan.request),
        "outbox_uuid": plan.binding.found.outbox_uuid,
        "cluster_id": plan.binding.cluster_id,
        "ledger_end": plan.ledger.end,
        "first_batch": plan.first_batch,
        "first_kept_batch": plan.ledger.first_kept,
        "dropped": [{"first_batch": first, "last_batch": last} for first, last in plan.dropped],
        "in_step": [{"epoch": epoch, "lane": lane} for epoch, lane in plan.in_step],
        "lanes": [
            {
                "epoch": lane.move.found.epoch.epoch,
                "lane": lane.move.found.lane,
                "kafka": None if lane.move.found.newest is None else asdict(lane.move.found.newest.cursor),
                "foreign": lane.move.found.foreign,
                "postgres": asdict(lane.move.found.postgres),
                "goes_on_after": asdict(lane.move.to),
                "again": dict(zip(names, lane.again, strict=True)),
                "skipped": dict(zip(names, lane.skipped, strict=True)),
                "trusted": dict(zip(names, lane.trusted, strict=True)),
                "unknown": {"sessions": lane.move.unknown.sessions, "events": lane.move.unknown.events},
            }
            for lane in plan.lanes
        ],
    }
