"""The checks of the archive: `publisher audit --archive`."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import psycopg

from publisher.archive.catalogue import read_catalogue
from publisher.audit.findings import Check

if TYPE_CHECKING:
    from publisher.archive.archive import Archive


def check_archived(
    connection: psycopg.Connection[Any],
    archive: "Archive",
    phase: Callable[[str, int], Callable[[int], None]],
) -> tuple[list[Check], int]:
    """Return the checks, and how many rows were read. Raises OSError, psycopg.Error."""
    from publisher.archive.check import check_archive

    rows = sum(of.rows for of in read_catalogue(connection))
    found = check_archive(connection, archive, phase("archive", rows))
    checks = [
        Check("archive_intact", "Is every archived partition there, as it was recorded?"),
        Check("archive_counts", "Does the archive hold what the ledger counts?"),
        Check(
            "archive_gaps", "Was everything archived that retention has dropped since it began to archive?"
        ),
        Check("archive_garbage", "Are there files that are in force no more?", fails=False),
    ]
    for check, lines in zip(
        checks, (found.damaged, found.miscounted, found.gaps, found.garbage), strict=True
    ):
        for line in lines:
            check.add(line)
    return checks, found.rows
