"""`publisher erase` as a test gives it: by a login that is a member of outbox_eraser and may do nothing else."""

import os
import subprocess
from hashlib import sha256
from pathlib import Path
from typing import Any
from unittest import mock
from urllib.parse import quote

from typer.testing import CliRunner, Result

from db.dump import pg_dump
from publisher.cli import app
from service.settings import Settings
from tests.support.json_documents import json_document
from tests.support.processes.commands import run_command
from tests.support.processes.environment import variables_of
from tests.support.queries import query


def variables(
    settings: Settings, fault_file: Path | None = None, cache: Path | None = None, role: str = "outbox_eraser"
) -> dict[str, str]:
    """The environment of the command."""
    dsn = settings.postgres.dsn.get_secret_value()
    as_role = quote(f"-c role={role}")
    return variables_of(settings, fault_file) | {
        "OUTBOX_POSTGRES__DSN": f"{dsn}{'&' if '?' in dsn else '?'}options={as_role}",
        "OUTBOX_JOB__CACHE": str(cache or "/nonexistent"),
    }


def erase(
    settings: Settings, *arguments: str, cache: Path | None = None, lock_timeout_ms: int = 30_000
) -> Result:
    """Run it in this process. An explained error is in `exception`."""
    outside: dict[str, str | None] = {name: None for name in os.environ if name.startswith("OUTBOX_")}
    impatient = {"OUTBOX_POSTGRES__LOCK_TIMEOUT_MS": str(lock_timeout_ms)}
    runner = CliRunner(env=outside | variables(settings, cache=cache) | impatient)
    with mock.patch("service.observability.logs.configure"):
        return runner.invoke(app, ["erase", "--yes", "--wait", "0", *arguments])


def erased(settings: Settings, *arguments: str, code: int = 0, cache: Path | None = None) -> dict[str, Any]:
    """Run it with --json, expected to end with `code`; its document."""
    result = erase(settings, "--json", *arguments, cache=cache)
    assert result.exit_code == code, f"{result.exception!r}\n{result.output}"
    assert result.exception is None or isinstance(result.exception, SystemExit), repr(result.exception)
    document: dict[str, Any] = json_document(result.stdout)
    return document


def erase_process(
    settings: Settings, *arguments: str, fault_file: Path | None = None
) -> "subprocess.CompletedProcess[str]":
    """Run it in a process of its own."""
    return run_command(
        "publisher", "erase", "--yes", "--wait", "0", *arguments, variables=variables(settings, fault_file)
    )


def whole_dump(dsn: str) -> bytes:
    """Everything that pg_dump reads of the database, and the planner's samples of columns, which it leaves out."""
    dump = subprocess.run([pg_dump(), "--dbname", dsn], capture_output=True, check=True).stdout
    samples = query(dsn, "SELECT s::text FROM pg_stats s WHERE s.schemaname = 'outbox'")
    return dump + "".join(text for (text,) in samples).encode()


def appears(dump: bytes, secret: bytes) -> bool:
    """Whether a text is anywhere in a dump, which shows bytea as hex."""
    return secret in dump or secret.hex().encode() in dump


def key_hash(dsn: str, key: str) -> str:
    """What stands for a key, computed as docs/privacy.md says."""
    ((outbox_uuid,),) = query(dsn, "SELECT outbox_uuid FROM outbox.identity")
    return sha256(outbox_uuid.bytes + key.encode()).hexdigest()
