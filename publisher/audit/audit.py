"""The whole audit: always the checks in SQL; on request also the archive, the topics and a consumer."""

import tempfile
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import structlog

from db.statements import queries
from publisher.archive.opening import open_archive
from publisher.audit.deliveries import check_deliveries, check_undelivered
from publisher.audit.erased import check_erased
from publisher.audit.findings import AuditReport
from publisher.audit.ledger import check_ledger
from publisher.audit.letters import check_letters
from publisher.audit.parked import check_parked
from publisher.audit.readback import readback
from publisher.audit.readback import state as states
from publisher.audit.readback.readback import Phase
from publisher.audit.scope import Limits, Scope, read_scope
from publisher.outbox.identity import OutboxIdentity, read_identity
from publisher.retention.retention_lock import hold_off_retention
from service.settings import Settings

_LEDGER = queries("publisher.audit", "ledger")

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class AuditRequest:
    """The command's options. `folder`: the folder for the state, None for a temporary one.

    `keys_file`: the file for the keys of lost rows, if they are many.

    `consumed`: a consumer's database or group, to compare with the topics; it requires `with_kafka`.
    """

    limits: Limits
    with_kafka: bool
    folder: Path | None
    keys_file: Path
    consumed: str | None = None
    with_archive: bool = False


def audit(
    connection: psycopg.Connection[Any], settings: Settings, request: AuditRequest, phase: Phase
) -> AuditReport:
    """Run the audit, and keep retention away until `connection` is closed. Raises SettingsError, UnavailableError, psycopg.Error."""
    # Otherwise rows that retention drops after the scope is frozen would be reported as missing.
    hold_off_retention(connection)
    archive = open_archive(connection, settings.retention, writing=False) if request.with_archive else None
    temporary = (
        tempfile.TemporaryDirectory(prefix="outbox-audit-") if request.folder is None else nullcontext()
    )
    with temporary as made:
        folder = request.folder or Path(str(made))
        identity = read_identity(connection)
        scope, state = _begin(connection, settings, identity, request, folder)
        sessions, events = _totals(connection, scope)
        report = AuditReport(
            str(identity.outbox_uuid), scope.first, scope.last, scope.ledger_from, scope.rows_from
        )
        report.counted |= {"sessions": sessions, "output_events": events}
        report.checks += check_ledger(connection, scope, phase("ledger and rows", sessions))
        report.checks += check_deliveries(connection, scope)
        report.checks += [
            *check_parked(connection, scope),
            *check_letters(connection),
            check_erased(connection, scope),
            check_undelivered(connection),
        ]
        if archive is not None:
            # Imported only here: the module needs the extra `archive`, which `open_archive` has already required.
            from publisher.audit.archived import check_archived

            checks, report.counted["archived_rows"] = check_archived(connection, archive, phase)
            report.checks += checks
        if state is not None:
            found = readback.run(
                connection, settings, state, folder, request.keys_file, request.consumed, phase
            )
            report.checks += found.checks
            report.counted |= found.counted
            report.mend += [found.mend] if found.mend is not None else []
        states.forget(folder)
    return report


def _begin(
    connection: psycopg.Connection[Any],
    settings: Settings,
    identity: OutboxIdentity,
    request: AuditRequest,
    folder: Path,
) -> tuple[Scope, states.AuditState | None]:
    """Freeze the scope, or continue with the scope of a killed audit."""
    scope = read_scope(connection, request.limits)
    if not request.with_kafka:
        return scope, None
    asked = {
        "outbox_uuid": str(identity.outbox_uuid),
        "cluster_id": identity.cluster_id,
        "from_batch": request.limits.from_batch,
        "to_batch": request.limits.to_batch,
        "since": None if request.limits.since is None else request.limits.since.isoformat(),
        "until": None if request.limits.until is None else request.limits.until.isoformat(),
    }
    state = states.load(folder, asked)
    if state is not None and not Scope.from_json(state.scope).still_kept(scope):
        # The killed audit's connection ended with it, so retention and erasure could remove rows that its scope had frozen.
        _log.warning(
            "audit_begins_anew", reason="outputs were dropped or erased after this state was written"
        )
        states.forget(folder)
        state = None
    if state is None:
        _, events = _totals(connection, scope)
        # Read the identity again: by now it has every topic of the scope's deliveries, including a topic that one of them used first.
        identity = read_identity(connection)
        state = readback.begin(connection, settings, identity, scope, asked, events)
        states.save(folder, state)
    return Scope.from_json(state.scope), state


def _totals(connection: psycopg.Connection[Any], scope: Scope) -> tuple[int, int]:
    row = connection.execute(
        _LEDGER["totals"], {"from_batch": scope.first, "to_batch": scope.last}
    ).fetchone()
    return (0, 0) if row is None else (row[0], row[1])
