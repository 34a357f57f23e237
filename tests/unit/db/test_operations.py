"""Every command either only reads, or leaves a row in the operator log."""

from pathlib import Path
from typing import Any

import pytest
import typer

from db.cli import app as db_app
from publisher.cli import app as publisher_app
from service.commands.main import DeferredCommand
from spark_job.cli import app as spark_job_app
from tests.support.paths import ROOT

APPS = {"spark-job": spark_job_app, "publisher": publisher_app, "outbox-migrate": db_app}
READS = {
    *("spark-job status", "spark-job init", "spark-job prepare", "spark-job decode"),
    *("spark-job dead-letters list", "spark-job dead-letters show"),
    *("spark-job savepoint list", "spark-job savepoint export"),
    *(
        "publisher status",
        "publisher console",
        "publisher audit",
        "publisher trace",
        "publisher find",
        "publisher locate",
    ),
    *("publisher lanes", "publisher parked list", "publisher parked show", "publisher retention plan"),
    *("publisher replay list", "publisher replay show"),
    *("outbox-migrate status", "outbox-migrate sql", "outbox-migrate check"),
    # They need no outbox.
    *("publisher check-cluster", "spark-job clock"),
}
SERVICES = {"publisher run"}
"""What they do by themselves is in the ledger and in the deliveries; `spark-job run` records its flags."""


def leaves(name: str, command: Any) -> set[str]:
    """Return the full names of a command, or of the commands of a group."""
    if isinstance(command, DeferredCommand):
        command = command.load()
    found = set() if hasattr(command, "commands") and not command.invoke_without_command else {name}
    for each, inner in getattr(command, "commands", {}).items():
        found |= leaves(f"{name} {each}", inner)
    return found


ALL = sorted(set().union(*(leaves(name, typer.main.get_command(app)) for name, app in APPS.items())))
SOURCES = "".join(
    path.read_text()
    for folder in ("publisher", "spark_job", "db")
    for path in sorted(Path(ROOT, folder).rglob("*.py"))
)


@pytest.mark.parametrize("name", ALL)
def test_a_command_reads_or_is_recorded_by_its_name(name: str) -> None:
    assert name in READS | SERVICES or f'"{name}"' in SOURCES


def test_what_only_reads_exists() -> None:
    assert set(ALL) >= READS | SERVICES
