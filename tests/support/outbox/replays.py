"""Replays to run, kill and look at: the command in this process or in one of its own, and what a consumer saw of each."""

import os
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any, Self
from unittest import mock

from typer.testing import CliRunner, Result

from db.connection import connect
from publisher.cli import app
from publisher.replay.store import NewReplay, ReplayLease, create
from service.settings import Settings
from tests.support.json_documents import json_document
from tests.support.processes.environment import variables_of, without_settings
from tests.support.queries import query
from tests.support.waiting import DEADLINE_S, wait_until
from tests.support.watching import Watcher

Event = tuple[bytes, bytes | None, str]
"""(key, value, outbox-id)"""


def replay(settings: Settings, *arguments: str) -> Result:
    """`publisher replay` in this process. An explained error is in `exception`."""
    outside: dict[str, str | None] = {name: None for name in os.environ if name.startswith("OUTBOX_")}
    runner = CliRunner(env=outside | variables_of(settings))
    # Loggers are kept for good, and the stderr of this call is closed after it.
    with mock.patch("service.observability.logs.configure"):
        return runner.invoke(app, ["replay", *arguments])


def replayed(settings: Settings, *arguments: str) -> dict[str, Any]:
    """`publisher replay ... --json` in this process, expected to succeed; its document."""
    result = replay(settings, *arguments, "--json")
    assert result.exception is None, f"{result.exception!r}\n{result.output}"
    document: dict[str, Any] = json_document(result.stdout)
    return document


def make_replay(settings: Settings, *, from_archive: bool = False) -> int:
    """A replay of the first batch, of which no process works."""
    new = NewReplay(1, 1, None, {}, None, "cluster", "servers", None, 4, 80, from_archive)
    with connect(settings.postgres, "a test", autocommit=True) as connection:
        return create(connection, new, None).replay_id


def die_before_the_commit(
    settings: Settings, replay_id: int, *, lease_s: float, leaves: bool = False
) -> None:
    """Claim a replay, check the lease, and be gone before the transaction is committed. `leaves`: without a kill."""
    with connect(settings.postgres, "a test", autocommit=True) as connection:
        lease = ReplayLease.claim(connection, replay_id, "a test", lease_s, paused_too=False)
        assert lease is not None
        assert lease.still_held(connection)
        if leaves:
            lease.release(connection, None, may_be_open=True)
    alive = "SELECT FROM outbox.replay r JOIN pg_stat_activity a ON a.pid = r.lease_backend_pid"
    dsn = settings.postgres.dsn.get_secret_value()
    wait_until(lambda: not query(dsn, alive), "the end of the backend")


def let_leases_run_out(dsn: str) -> None:
    """Let the time pass that the leases of replays last."""
    query(dsn, "UPDATE outbox.replay SET lease_until = now() - interval '1 second'")


class ReplayProcess:
    """`publisher replay` in a process of its own."""

    command = "replay"

    def __init__(
        self, settings: Settings, log: Path, *arguments: str, fault_file: Path | None = None
    ) -> None:
        self._log = log
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "publisher", self.command, *arguments],
                env=without_settings() | variables_of(settings, fault_file),
                stdout=output,
                stderr=output,
                stdin=subprocess.DEVNULL,
            )

    def wait(self) -> int:
        """Wait for the end and return the exit code."""
        return self.process.wait(DEADLINE_S)

    def log(self) -> str:
        """What it and those before it in the same file printed."""
        return self._log.read_text("utf-8")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


class ConsoleProcess(ReplayProcess):
    """`publisher console` in a process of its own."""

    command = "console"


class ResumeProcess(ReplayProcess):
    """`publisher resume` in a process of its own."""

    command = "resume"


def seen_of(watcher: Watcher, replay_uuid: str | None) -> list[Event]:
    """What a consumer saw of one replay (None: of live publishing), partition by partition in order."""
    mark = None if replay_uuid is None else replay_uuid.encode()
    return [
        (event.key, event.value, event.outbox_id)
        for event in watcher.seen
        if dict(event.headers).get("outbox-replay") == mark
    ]


def assert_replayed(watcher: Watcher, replay_uuid: str, wanted: list[Event]) -> None:
    """Fail unless a consumer saw exactly these events of the replay: each once, same bytes, in order for each key."""
    wait_until(
        lambda: len(seen_of(watcher, replay_uuid)) >= len(wanted),
        lambda: f"{len(wanted)} events, saw {len(seen_of(watcher, replay_uuid))}",
    )
    watcher.wait_until_all_read()
    seen = seen_of(watcher, replay_uuid)
    assert Counter(seen) == Counter(wanted)
    assert _by_key(seen) == _by_key(wanted)


def _by_key(events: list[Event]) -> dict[bytes, list[Event]]:
    found = defaultdict(list)
    for event in events:
        found[event[0]].append(event)
    return found
