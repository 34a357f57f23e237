"""Runs retention once: creates the partitions of coming batches, drops old ones, and prunes the ledger."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import psycopg
import structlog

from db.connection import connect
from db.lock_holders import lock_holder, take_lock
from db.migrate import require_current
from db.statements import queries, quoted
from publisher.archive.catalogue import read_catalogue
from publisher.archive.files import ArchiveDamagedError
from publisher.archive.opening import open_archive
from publisher.retention.drop import archive_and_drop, drop_partition
from publisher.retention.letters import is_limited
from publisher.retention.plan import DropVerdict
from publisher.retention.prune import Pruned, prune
from publisher.retention.retention_lock import RETENTION_LOCK
from publisher.retention.survey import RetentionSurvey, survey
from service.errors import FencedError, OutboxError, SettingsError, UnavailableError, reason_of
from service.lifecycle.fault_points import reach
from service.settings import PostgresSettings, RetentionSettings, Settings

if TYPE_CHECKING:
    from publisher.archive.archive import ArchiveWriter

_PARTITIONS = queries("publisher.retention", "partitions")
_SESSION = queries("publisher.retention", "session")

_log = structlog.get_logger()


class RightsError(OutboxError):
    """The login may not drop partitions."""


@dataclass
class RetentionReport:
    """The result of a run. `failed`: why it stopped dropping partitions, None if it did not."""

    survey: RetentionSurvey
    made: int
    dropped: list[str] = field(default_factory=list)
    archived_rows: int = 0
    freed_bytes: int = 0
    pruned: Pruned = field(default_factory=Pruned)
    failed: UnavailableError | None = None


def postgres_settings(settings: Settings) -> PostgresSettings:
    """Return how retention connects: with its own login if one is set."""
    return settings.postgres.logged_in_by(settings.retention.dsn, settings.retention.dsn_file, "retention")


def require_limit(settings: Settings) -> None:
    """Raise SettingsError unless retention is switched on."""
    retention = settings.retention
    if retention.keep_s is None and retention.keep_bytes is None and not is_limited(retention):
        raise SettingsError(
            "retention is off: set [retention] keep_s (OUTBOX_RETENTION__KEEP_S, seconds) or keep_bytes "
            "(OUTBOX_RETENTION__KEEP_BYTES), or for dead letters keep_letters_s or keep_letters_bytes. Nothing was done"
        )


def run_once(settings: Settings) -> RetentionReport:
    """Run every step once.

    Raises SettingsError if retention is off, RightsError, FencedError while another retention runs, UnavailableError, SchemaError.
    """
    require_limit(settings)
    with _session(settings) as connection:
        failed: Exception | None = None
        try:
            report = _run(connection, settings)
            failed = report.failed
            return report
        except Exception as error:
            failed = error
            raise
        finally:
            # An alert reads this. Nothing can be written over a lost connection; a separate alert covers that.
            if not connection.closed:
                connection.execute(
                    _SESSION["ended"], {"failed": None if failed is None else reason_of(failed)}
                )


def _run(connection: psycopg.Connection[Any], settings: Settings) -> RetentionReport:
    retention = settings.retention
    row = connection.execute(_PARTITIONS["ensure"], {"ahead_batches": retention.ahead_batches}).fetchone()
    made = 0 if row is None else row[0]
    report = RetentionReport(survey(connection, retention), made)
    _say_detached(report.survey)
    try:
        archive = _archive(connection, retention) if report.survey.to_drop else None
    except UnavailableError as error:
        report.failed = error
    else:
        _drop_all(connection, report, archive, retention.lock_timeout_s)
    report.pruned = prune(connection, retention, settings.publisher.keep_deliveries_s)
    return report


def _archive(connection: psycopg.Connection[Any], settings: RetentionSettings) -> "ArchiveWriter | None":
    """Return the archive to write to, None if none is set. Raises SettingsError, UnavailableError if the archive is missing.

    A mount point exists even without its volume, and the next mount would hide files written into it. So an archive that is
    not claimed must have the manifest of the newest partition that was archived, if there is one.
    """
    if not settings.archive:
        return None
    archive = open_archive(connection, settings, writing=True)
    try:
        if not archive.is_claimed():
            for newest in read_catalogue(connection)[-1:]:
                archive.manifest(newest)
        return archive.claimed(connection)
    except OSError as error:
        raise UnavailableError(
            f"nothing is dropped, because the archive cannot be used: {error}. The next run tries again"
        ) from error
    except ArchiveDamagedError as error:
        raise UnavailableError(
            f"nothing is dropped, because the archive is not the one that the last partition went into: {error}. Mount it at [retention] "
            f"archive = {settings.archive!r}, or bring its files there. The next run tries again"
        ) from error


def _say_detached(found: RetentionSurvey) -> None:
    for each in found.detached:
        _log.warning(
            "detached_by_somebody_else",
            table=f"outbox.{each.name}",
            pending=each.pending,
            mend=f"ALTER TABLE outbox.session_output DETACH PARTITION outbox.{each.name} FINALIZE"
            if each.pending
            else f"move it to another schema if it is kept, else DROP TABLE outbox.{each.name}",
        )


def _drop_all(
    connection: psycopg.Connection[Any],
    report: RetentionReport,
    archive: "ArchiveWriter | None",
    patience_s: float,
) -> None:
    for decision in report.survey.decisions:
        partition = decision.partition
        if decision.verdict is not DropVerdict.DROP:
            continue
        manifest = None
        try:
            if archive is None:
                drop_partition(connection, partition.name, patience_s)
            else:
                manifest = archive_and_drop(connection, archive, partition, patience_s)
                report.archived_rows += manifest.total("rows")
            reach("retention.after_drop")
        except UnavailableError as error:
            # The same transaction would block the other drops, too.
            report.failed = error
            return
        report.dropped.append(partition.name)
        report.freed_bytes += partition.size
        _log.info(
            "partition_dropped", table=f"outbox.{partition.name}", bytes=partition.size, because=decision.due
        )
        if archive is not None and manifest is not None:
            try:
                archive.dropped(manifest)
            except (ArchiveDamagedError, UnavailableError, OSError) as error:
                report.failed = UnavailableError(
                    f"outbox.{partition.name} is archived and dropped, but the archive did not record it: {error}. The next run records it"
                )
                return


@contextmanager
def _session(settings: Settings) -> Iterator[psycopg.Connection[Any]]:
    """Open a connection that may drop partitions, and hold the retention lock on it until the block ends."""
    with connect(postgres_settings(settings), "publisher retention", autocommit=True) as connection:
        require_current(connection)
        require_rights(connection, settings.retention)
        connection.execute(_SESSION["open"], {"lock_timeout": f"{settings.retention.lock_timeout_s}s"})
        if not take_lock(connection, _SESSION["lock"], RETENTION_LOCK):
            raise FencedError(_other(connection))
        try:
            yield connection
        except psycopg.errors.LockNotAvailable as error:
            raise UnavailableError(
                f"could not acquire a lock in time: {str(error).strip()}. Run the command again"
            ) from error
        # InternalError: the server is read-only after a failover.
        except (psycopg.OperationalError, psycopg.InternalError) as error:
            raise UnavailableError(
                f"Postgres at {postgres_settings(settings).address()} went away: {str(error).strip()}. Run the command again: what was "
                "done stays done"
            ) from error


def require_rights(connection: psycopg.Connection[Any], settings: RetentionSettings) -> None:
    """Raise RightsError unless this login may drop partitions and, if the settings ask for it, remove open letters and read outputs."""
    row = connection.execute(_SESSION["may_drop"]).fetchone()
    assert row is not None
    login, may_drop, may_drop_open_letters, may_read = row
    if not may_drop:
        raise RightsError(
            f"{login!r} may not drop partitions. Set [retention] dsn or dsn_file (OUTBOX_RETENTION__DSN) to a login with the role "
            "outbox_retention: CREATE ROLE retention LOGIN; GRANT outbox_retention TO retention; \\password retention. Nothing was done"
        )
    if settings.drop_open_letters and not may_drop_open_letters:
        raise RightsError(
            f"{login!r} may not remove open dead letters ([retention] drop_open_letters), which are input without an output: GRANT EXECUTE "
            f"ON FUNCTION outbox.remove_open_letters(double precision, bigint, bigint, integer) TO {quoted(login)}. Nothing was done"
        )
    if settings.archive and not may_read:
        raise RightsError(
            f"{login!r} may not read the outputs, which [retention] archive keeps: GRANT SELECT ON outbox.session_output TO "
            f"{quoted(login)}; GRANT SELECT (session_key) ON outbox.parked TO {quoted(login)}. Nothing was done"
        )


def _other(connection: psycopg.Connection[Any]) -> str:
    holder = lock_holder(connection, RETENTION_LOCK)
    if holder is None:
        return "another retention runs, or has just ended. Nothing was done"
    if holder.shared:
        return (
            f"{holder} needs the outputs unchanged for now. Nothing was done; run retention again when that has ended, or end it "
            f"with: SELECT pg_terminate_backend({holder.pid})"
        )
    return f"another retention runs, {holder}, and does the work. Nothing was done here"
