"""A streaming replica of a local Postgres: a server of its own that follows another one and can take its place."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import LiteralString

import psycopg

from devstack.postgres import SUPERUSER, Postgres
from devstack.processes.account import Account
from devstack.processes.errors import DevstackError, tail
from devstack.processes.port import LOOPBACK

_TIMEOUT_S = 60.0
_POLL_S = 0.02


class Replica(Postgres):
    """A hot standby of `primary`, made with pg_basebackup at its first start; `primary` must run then.

    Life and data directory are as those of `Postgres`. After `promote` it is a primary like any other, also over restarts.
    """

    name = "Postgres replica"

    def __init__(
        self,
        data_dir: Path,
        primary: Postgres,
        *,
        synchronous: bool = False,
        fast: bool = False,
        port: int = 0,
        settings: dict[str, str] | None = None,
    ) -> None:
        """Describe a replica; nothing is started.

        `synchronous`: from its first start on, a commit on the primary returns after the replica has written it to its disk
        (synchronous_commit = on); while the replica is away, commits there wait. The rest: see Postgres.
        """
        super().__init__(data_dir, fast=fast, port=port, settings=settings)
        self._primary = primary
        self._synchronous = synchronous

    def start(self) -> None:
        """Start it and return when it answers readers and receives from the primary, if that runs.

        Raises DevstackError with the tail of its log when it does not come up.
        """
        super().start()
        if self._is_standby() and self._primary.is_running():
            self._wait(self._is_streaming, "to receive from the primary")
            if self._synchronous:
                self._primary.configure("synchronous_standby_names", f'"{self._standby_name()}"')
                self._wait(self._is_synchronous, "to be the primary's synchronous standby")

    def promote(self) -> None:
        """Make it a primary, on a new timeline, with all that it has received. Returns when it takes writes.

        Ends the old primary's role here only: see to it that nobody writes there any more.
        """
        with psycopg.connect(self.dsn(), autocommit=True) as connection:
            connection.execute("SELECT pg_promote(wait => false)")
        self._wait(lambda: not self._is_standby(), "to take writes")

    def detach(self) -> None:
        """Receive nothing more, as if the network to the primary were cut; what was received stays and is readable."""
        self.configure("primary_conninfo", "")
        self._wait(lambda: not self._is_streaming(), "to stop receiving")

    def wait_for_replay(self) -> None:
        """Return once readers here see everything that is committed on the primary now."""
        with psycopg.connect(self._primary.dsn(), autocommit=True) as connection:
            (position,) = connection.execute("SELECT pg_current_wal_flush_lsn()::text").fetchone() or ("0/0",)
        self._wait(
            lambda: self._ask("SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn", position),
            f"to replay up to {position}",
        )

    def _initialise(self, binaries: Path, data: Path, account: Account | None) -> None:
        if not self._primary.is_running():
            raise DevstackError(
                f"the replica on {self.data_dir} has no data yet and its primary does not run: start the primary first"
            )
        # application_name is the name that synchronous_standby_names knows.
        source = f"host={LOOPBACK} port={self._primary.port} user={SUPERUSER} application_name={self._standby_name()}"
        command = [
            str(binaries / "pg_basebackup"),
            "--pgdata",
            str(data),
            "--dbname",
            source,
            "--write-recovery-conf",
            "--wal-method=stream",
            "--checkpoint=fast",
        ]
        self._fill(data, command + (["--no-sync"] if self._fast else []), account)
        # Postgres refuses a directory that others may enter; pg_basebackup leaves the mode of one that was there.
        data.chmod(0o700)

    def _standby_name(self) -> str:
        return f"replica_{self.port}"

    def _is_standby(self) -> bool:
        return self._ask("SELECT pg_is_in_recovery()")

    def _is_streaming(self) -> bool:
        return self._ask("SELECT EXISTS (SELECT FROM pg_stat_wal_receiver WHERE status = 'streaming')")

    def _is_synchronous(self) -> bool:
        with psycopg.connect(self._primary.dsn(), autocommit=True) as connection:
            found = connection.execute(
                "SELECT FROM pg_stat_replication WHERE application_name = %s AND sync_state = 'sync'",
                (self._standby_name(),),
            )
            return found.fetchone() is not None

    def _ask(self, question: LiteralString, *parameters: str) -> bool:
        with psycopg.connect(self.dsn(), autocommit=True) as connection:
            row = connection.execute(question, parameters).fetchone()
        return row is not None and row[0] is True

    def _wait(self, done: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + _TIMEOUT_S
        while not done():
            if time.monotonic() > deadline:
                raise DevstackError(f"{self.name} took more than {_TIMEOUT_S:g} s {what}; {tail(self.log)}")
            time.sleep(_POLL_S)


def failover_dsn(servers: Sequence[Postgres], database: str) -> str:
    """The DSN that leads to whichever of the servers takes writes now."""
    hosts = ",".join(f"{LOOPBACK}:{server.port}" for server in servers)
    return f"postgresql://{SUPERUSER}@{hosts}/{database}?target_session_attrs=read-write"
