"""Drops a partition, and records the drop in the operator log in the same transaction.

Other transactions wait at most for the duration of one attempt.
"""

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import psycopg

from db import operations
from db.statements import queries
from publisher.archive.files import ArchiveDamagedError
from publisher.retention.plan import Partition
from service.errors import UnavailableError
from service.lifecycle.fault_points import reach

if TYPE_CHECKING:
    from publisher.archive.archive import ArchiveWriter
    from publisher.archive.manifest import Manifest

_PARTITIONS = queries("publisher.retention", "partitions")

_PAUSE_S = 1.0
"""The pause between two attempts, in which the statements that waited behind the first one can run."""


def archive_and_drop(
    connection: psycopg.Connection[Any], archive: "ArchiveWriter", partition: Partition, patience_s: float
) -> "Manifest":
    """Archive and drop an attached partition in one transaction, which holds the partition's lock throughout; return the manifest.

    Raises as `drop_partition`, and UnavailableError if the archive cannot be written. After an error the partition is unchanged.
    """
    try:
        with connection.transaction():
            manifest = archive.write(connection, partition.name, partition.first, partition.end - 1)
            _until_free(
                connection,
                partition.name,
                patience_s,
                lambda: archive.drop(connection, manifest),
                archived_rows=manifest.total("rows"),
            )
        return manifest
    except psycopg.errors.LockNotAvailable as error:
        raise UnavailableError(
            f"outbox.{partition.name} could not be held while it is archived: somebody changes its rows ([retention] lock_timeout_s). "
            f"{_in_the_way(connection, partition.name)} The next run tries again"
        ) from error
    except (ArchiveDamagedError, OSError) as error:
        raise UnavailableError(
            f"outbox.{partition.name} was not archived, so it stays: {error}. The next run archives it from the beginning"
        ) from error


def drop_partition(connection: psycopg.Connection[Any], name: str, patience_s: float) -> None:
    """Drop an attached partition. `connection` must be in autocommit mode, and hold the retention lock.

    Each attempt waits a fifth of a second for transactions that use the outputs; attempts are repeated for up to `patience_s`. Raises
    UnavailableError if these transactions have not ended by then, or if somebody has begun to need the partition since the survey.
    """
    _until_free(
        connection, name, patience_s, lambda: connection.execute(_PARTITIONS["drop"], {"partition": name})
    )


def _until_free(
    connection: psycopg.Connection[Any],
    name: str,
    patience_s: float,
    drop: Callable[[], object],
    **recorded: int,
) -> None:
    deadline = time.monotonic() + patience_s
    while not _try(connection, name, drop, recorded, last=time.monotonic() >= deadline):
        time.sleep(_PAUSE_S)


def _try(
    connection: psycopg.Connection[Any],
    name: str,
    drop: Callable[[], object],
    recorded: Mapping[str, int],
    *,
    last: bool,
) -> bool:
    reach("retention.before_drop")
    try:
        with connection.transaction():
            drop()
            operations.record(connection, "publisher retention run", {}, {"dropped": name, **recorded})
    except psycopg.errors.LockNotAvailable as error:
        if not last:
            return False
        raise UnavailableError(
            f"outbox.{name} could not be dropped: transactions that use the outputs did not end in time "
            f"([retention] lock_timeout_s). {_in_the_way(connection, name)} The next run tries again"
        ) from error
    except psycopg.errors.ObjectNotInPrerequisiteState as error:
        raise UnavailableError(
            f"{error.diag.message_primary}: this changed after the survey. Run the command again"
        ) from error
    return True


def _in_the_way(connection: psycopg.Connection[Any], name: str) -> str:
    found = connection.execute(_PARTITIONS["in_the_way"], {"partition": name}).fetchall()
    if not found:
        return "They have ended since."
    shown = "; ".join(
        f"pid {pid} ({application} of {user}{'' if age_s is None else f', for {age_s:.0f} s'})"
        for pid, application, user, age_s in found
    )
    return f"In the way: {shown}. Wait for them, or end one with: SELECT pg_terminate_backend({found[0][0]})."
