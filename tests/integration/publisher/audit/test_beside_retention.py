"""An audit and retention at the same time: what is dropped while somebody looks must not be reported as lost."""

from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from db.connection import connect
from publisher.audit.audit import AuditRequest, audit
from publisher.audit.findings import AuditReport
from publisher.audit.scope import Limits
from publisher.retention.retention import run_once
from service.errors import FencedError
from service.settings import Settings
from tests.support.outbox.audits import failed, run_audit
from tests.support.outbox.batches import Outbox, read_offsets, simple
from tests.support.outbox.deliveries import deliver
from tests.support.outbox.old_outputs import PARTITION, add_batches, partitions, retention_settings


class KilledError(Exception):
    """What a test raises in the middle of an audit."""


@pytest.fixture
def old(outbox: Outbox, settings: Settings) -> Settings:
    """Outputs that were delivered, in the oldest of two partitions, which retention would drop at once."""
    outbox.batch(simple(1, 5))
    add_batches(outbox.dsn, PARTITION + 5)
    read_offsets(outbox.dsn)
    deliver(settings)
    return settings


def audit_with(settings: Settings, folder: Path, in_phase: Callable[[str], None]) -> AuditReport:
    """An audit of the topics that calls `in_phase` with the name of each phase as it begins; its state is in `folder`."""

    def phase(name: str, steps: int) -> Callable[[int], None]:
        in_phase(name)
        return lambda done: None

    request = AuditRequest(Limits(), True, folder, folder / "lost-keys.txt")
    with connect(settings.postgres, "publisher audit", autocommit=True) as connection:
        return audit(connection, settings, request, phase)


def test_retention_waits_for_an_audit_and_says_for_whom(old: Settings, tmp_path: Path) -> None:
    dsn = old.postgres.dsn.get_secret_value()
    refused = []

    def retain(phase: str) -> None:
        with pytest.raises(
            FencedError, match=r"pid \d+ \(publisher audit\) needs the outputs unchanged"
        ) as error:
            run_once(retention_settings(dsn))
        refused.append(f"{phase}: {error.value}")

    assert failed(audit_with(old, tmp_path, retain)) == {}
    assert len(refused) == 4
    assert partitions(dsn)[0] == "0"
    assert run_once(retention_settings(dsn)).dropped == ["session_output_p00000000"]
    assert failed(run_audit(old, tmp_path, kafka=True)) == {}


def test_an_audit_that_was_killed_begins_anew_where_retention_has_dropped_outputs_since(
    old: Settings, tmp_path: Path
) -> None:
    def die(phase: str) -> None:
        if phase == "reading the outbox":
            raise KilledError

    with pytest.raises(KilledError):
        audit_with(old, tmp_path, die)
    assert (tmp_path / "state.json").exists()
    assert run_once(retention_settings(old.postgres.dsn.get_secret_value())).dropped != []
    phases: list[str] = []
    report = audit_with(old, tmp_path, phases.append)
    assert (failed(report), report.rows_from) == ({}, PARTITION)
    assert "reading the topics back" in phases


def test_an_audit_that_was_killed_continues_where_nothing_was_dropped(old: Settings, tmp_path: Path) -> None:
    def die(phase: str) -> None:
        if phase == "reading the outbox":
            raise KilledError

    with pytest.raises(KilledError):
        audit_with(old, tmp_path, die)
    phases: list[str] = []
    assert failed(audit_with(old, tmp_path, phases.append)) == {}
    assert "reading the topics back" not in phases


def test_an_audit_begun_while_retention_runs_says_so(old: Settings, tmp_path: Path) -> None:
    hasty = old.postgres.model_copy(update={"lock_timeout_ms": 100})
    settings = Settings.model_construct(postgres=hasty, kafka=old.kafka, publisher=old.publisher)
    with psycopg.connect(old.postgres.dsn.get_secret_value(), autocommit=True) as retention:
        retention.execute("SELECT pg_advisory_lock(hashtextextended('outbox.retention', 0))")
        with pytest.raises(Exception, match="retention has held the outputs"):
            run_audit(settings, tmp_path)
