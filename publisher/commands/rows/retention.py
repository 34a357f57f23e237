"""`publisher retention`: shows which partitions would be dropped and what needs the others, and drops old ones once or repeatedly."""

import threading
from dataclasses import asdict
from typing import Annotated, Any

import psycopg
import structlog
import typer

from db.connection import connect
from db.migrate import require_current
from publisher.commands.common import database
from publisher.retention.letters import LettersSurvey, is_limited
from publisher.retention.plan import Decision
from publisher.retention.retention import (
    RetentionReport,
    postgres_settings,
    require_limit,
    require_rights,
    run_once,
)
from publisher.retention.survey import RetentionSurvey, survey
from service.commands.confirm import confirm
from service.commands.options import Config, DryRun, Json, Yes
from service.commands.output import console, print_json
from service.commands.tables import Table
from service.commands.times import parse_pause
from service.errors import FencedError, SettingsError, UnavailableError
from service.kafka.transport import name_unprotected
from service.lifecycle import fault_points
from service.lifecycle.shutdown import stop_on_signals
from service.observability import logs
from service.settings import RetentionSettings, Settings, load_settings

app = typer.Typer(no_args_is_help=True, help="Drop old delivered outputs, prune the ledger.")
_log = structlog.get_logger()


@app.command()
def plan(config: Config = None, as_json: Json = False) -> None:
    """Show each table partition, what would be dropped, what cannot be and why, and how fast the outbox grows. Changes nothing.

    Exits 1 if a partition should be dropped and cannot be.
    """
    settings = load_settings(config)
    with database(settings, "retention plan") as connection:
        found = survey(connection, settings.retention)
    _show_plan(settings, found, as_json=as_json)
    raise typer.Exit(1 if found.refused else 0)


@app.command()
def run(
    config: Config = None,
    as_json: Json = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    every: Annotated[
        str, typer.Option(help="Run again and again with this pause: 30m, 1h, 1d. Needs --yes.")
    ] = "",
) -> None:
    """Drop delivered, unneeded outputs past the limit. Needs a login with the role outbox_retention (retention.dsn).

    Exit codes: 0 done, 1 a partition should be dropped and cannot be (the others were dropped) or the login may not drop, 2 retention is
    off or nobody can be asked, 4 another retention runs, 6 Postgres does not answer or a transaction blocked it for too long.
    """
    settings = load_settings(config)
    require_limit(settings)
    logs.configure(settings.log)
    name_unprotected(settings)
    fault_points.arm(settings.testing.fault_file)
    if every:
        _run_for_ever(settings, parse_pause(every, "--every"), yes=yes)
        return
    with connect(postgres_settings(settings), "publisher retention", autocommit=True) as connection:
        require_current(connection)
        require_rights(connection, settings.retention)
        found = survey(connection, settings.retention)
    if dry_run:
        _show_plan(settings, found, as_json=as_json)
        raise typer.Exit(1 if found.refused else 0)
    _confirm(found, yes=yes)
    report = run_once(settings)
    if as_json:
        print_json(_report_json(report))
    else:
        _print_report(report)
    if report.failed is not None:
        raise report.failed
    raise typer.Exit(1 if report.survey.refused else 0)


def _run_for_ever(settings: Settings, pause_s: float, *, yes: bool) -> None:
    if not yes:
        raise SettingsError("--every drops without asking: add --yes. Nothing was done")
    stop = threading.Event()
    with stop_on_signals(stop):
        while not stop.is_set():
            try:
                report = run_once(settings)
            # SettingsError: the archive's folder does not exist while its volume is not mounted.
            except (UnavailableError, FencedError, SettingsError) as error:
                _log.warning("retention_failed", reason=str(error))
            except psycopg.Error as error:
                # The next run may succeed. Until then the alert OutboxRetentionBlocked, which reads outbox.retention, reports it.
                _log.error("retention_failed", reason=str(error).strip())
            else:
                _log_report(report)
            stop.wait(pause_s)


def _log_report(report: RetentionReport) -> None:
    _log.info(
        "retention_done",
        dropped=len(report.dropped),
        freed_bytes=report.freed_bytes,
        archived_rows=report.archived_rows,
        refused=len(report.survey.refused),
        ledger_rows=report.pruned.batches,
    )
    for decision in report.survey.refused:
        _log.warning(
            "partition_refused", table=f"outbox.{decision.partition.name}", reasons=list(decision.reasons)
        )
    if report.failed is not None:
        _log.warning("partition_not_detached", reason=str(report.failed))


def _confirm(found: RetentionSurvey, *, yes: bool) -> None:
    if not found.to_drop:
        return
    what = f"{len(found.to_drop)} partitions, {sum(d.partition.size for d in found.to_drop)} bytes of delivered outputs"
    confirm(yes, f"Drop {what}?", f"this drops {what}")


def _show_plan(settings: Settings, found: RetentionSurvey, *, as_json: bool) -> None:
    if as_json:
        print_json(_plan_json(found))
        return
    out = console()
    table = Table(["batches", "size", "newest batch", "verdict", "partition"])
    for decision in found.decisions:
        partition = decision.partition
        table.add(
            f"{partition.first} - {partition.end - 1}",
            size_text(partition.size),
            "none" if partition.newest_at is None else partition.newest_at,
            decision.verdict.value,
            partition.name,
            note="\n".join((decision.due, *decision.reasons)).strip(),
        )
    table.print(out)
    for each in found.detached:
        out.print(f"outbox.{each.name}, {size_text(each.size)}: detached by somebody else: left alone")
    for line in _growth_lines(settings, found):
        out.print(line)


def _growth_lines(settings: Settings, found: RetentionSurvey) -> list[str]:
    growth, retention = found.growth, settings.retention
    lines = [
        f"outputs: {size_text(growth.bytes)} in {growth.batches} batches, the newest is {growth.newest_batch}"
    ]
    by_bytes, by_batches = growth.per_day(growth.bytes), growth.per_day(growth.batches)
    if by_bytes is not None and by_batches is not None:
        lines.append(f"growth: {size_text(int(by_bytes))} and {by_batches:,.0f} batches a day")
        ahead = found.last_batch_with_partition - growth.newest_batch
        lines.append(
            f"partitions are there up to batch {found.last_batch_with_partition}, for {_span(ahead / by_batches)}; the job makes more"
        )
    lines.append(_letters_line(retention, found.letters))
    if retention.keep_s is None and retention.keep_bytes is None:
        lines.append(
            "retention is off ([retention] keep_s, keep_bytes): nothing is ever dropped, and the disk of Postgres is the bound"
        )
    elif retention.keep_bytes is not None and by_bytes and growth.bytes <= retention.keep_bytes:
        lines.append(f"keep_bytes is reached in {_span((retention.keep_bytes - growth.bytes) / by_bytes)}")
    return lines


def _letters_line(retention: RetentionSettings, letters: LettersSurvey) -> str:
    size = f"dead letters: {size_text(letters.disk_bytes)} on disk"
    if not is_limited(retention):
        return f"{size}, kept for ever ([retention] keep_letters_s, keep_letters_bytes)"
    if letters.bytes is None:
        return f"{size}; this login may not read how many are past their limit"
    old_open = letters.old_open if retention.drop_open_letters else 0
    excess = (
        0 if retention.keep_letters_bytes is None else max(0, letters.bytes - retention.keep_letters_bytes)
    )
    return (
        f"{size}, {size_text(letters.bytes)} in {letters.closed:,} resolved or discarded and {letters.open:,} open ones; to be removed: "
        f"{(letters.old_closed or 0) + (old_open or 0):,} by age, {size_text(excess)} by size"
    )


def _span(days: float) -> str:
    return f"{days:.1f} days" if days >= 1 else f"{days * 24:.1f} hours"


def size_text(size: int) -> str:
    """Return a size for people."""
    value = float(size)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1_000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1_000
    return f"{value:.1f} TB"


def _print_report(report: RetentionReport) -> None:
    out = console()
    for name in report.dropped:
        out.print(f"dropped outbox.{name}")
    if report.archived_rows:
        out.print(f"archived before that: {report.archived_rows:,} rows")
    for decision in report.survey.refused:
        out.print(f"refused outbox.{decision.partition.name}: {'; '.join(decision.reasons)}", style="red")
    pruned = report.pruned
    out.print(
        f"partitions dropped: {len(report.dropped)} ({size_text(report.freed_bytes)}), refused: "
        f"{len(report.survey.refused)}, made ahead: {report.made}; rows pruned: {pruned.batches} of the ledger, "
        f"{pruned.deliveries} deliveries, {pruned.parked} parked rows, {pruned.letters} dead letters, {pruned.epochs} lane epochs, "
        f"{pruned.processes} processes, {pruned.replays} replays, {pruned.operations} operations"
    )


def _decision_json(decision: Decision) -> dict[str, Any]:
    partition = decision.partition
    return {
        "partition": partition.name,
        "first_batch": partition.first,
        "last_batch": partition.end - 1,
        "bytes": partition.size,
        "newest_batch_at": partition.newest_at,
        "verdict": decision.verdict.value,
        "due": decision.due or None,
        "reasons": list(decision.reasons),
    }


def _plan_json(found: RetentionSurvey) -> dict[str, Any]:
    growth = found.growth
    return {
        "partitions": [_decision_json(decision) for decision in found.decisions],
        "detached": [
            {"table": each.name, "pending": each.pending, "bytes": each.size} for each in found.detached
        ],
        "bytes": growth.bytes,
        "letters": asdict(found.letters),
        "newest_batch": growth.newest_batch,
        "last_batch_with_partition": found.last_batch_with_partition,
        "bytes_per_day": growth.per_day(growth.bytes),
        "batches_per_day": growth.per_day(growth.batches),
    }


def _report_json(report: RetentionReport) -> dict[str, Any]:
    pruned = report.pruned
    return {
        "dropped": report.dropped,
        "freed_bytes": report.freed_bytes,
        "archived_rows": report.archived_rows,
        "made_ahead": report.made,
        "refused": [_decision_json(decision) for decision in report.survey.refused],
        "pruned": {
            "batches": pruned.batches,
            "deliveries": pruned.deliveries,
            "parked": pruned.parked,
            "letters": pruned.letters,
            "epochs": pruned.epochs,
            "processes": pruned.processes,
            "replays": pruned.replays,
            "operations": pruned.operations,
        },
        "failed": None if report.failed is None else str(report.failed),
    }
