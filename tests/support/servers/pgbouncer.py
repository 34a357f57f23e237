"""A real PgBouncer before the run's Postgres: the one on PATH, else Debian's package, unpacked into the user's cache and installed nowhere.

Where neither can be had, CI gets an error, and a person's run continues: the tests concerned are named as NOT RUN at its end.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from psycopg import conninfo

from devstack.databases import PostgresServer
from devstack.processes.account import reachable_folder, server_account
from devstack.processes.port import LOOPBACK, ReservedPort, is_listening
from spark_job.spark.jars import cache_dir
from tests.support.containers.fixtures import containers_are_a_must
from tests.support.waiting import wait_until

_PACKAGES = ("pgbouncer", "libc-ares2", "libevent-2.1-7")
_START_S = 30.0


class NoPgBouncerError(Exception):
    """There is none on PATH, and apt has no package of it here; the message says why."""


def program() -> tuple[Path, dict[str, str]]:
    """PgBouncer and the environment that it needs. Raises NoPgBouncerError."""
    found = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if found is not None:
        return Path(found), {}
    unpacked = cache_dir().parent / "pgbouncer"
    if not unpacked.exists():
        _unpack(unpacked)
    libraries = ":".join(sorted({str(path.parent) for path in unpacked.rglob("*.so.*")}))
    return unpacked / "usr/sbin/pgbouncer", {"LD_LIBRARY_PATH": libraries}


def _unpack(folder: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    # A half-made folder must never be taken for a whole one: the rename is the last step.
    with tempfile.TemporaryDirectory(prefix=".pgbouncer-", dir=folder.parent) as scratch:
        made = Path(scratch) / "root"
        _run(["apt-get", "-qq", "download", *_PACKAGES], Path(scratch))
        for package in Path(scratch).glob("*.deb"):
            _run(["dpkg-deb", "-x", str(package), str(made)], Path(scratch))
        made.rename(folder)


def _run(command: list[str], folder: Path) -> None:
    try:
        ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoPgBouncerError(f"{command[0]}: {error}") from error
    if ended.returncode != 0:
        raise NoPgBouncerError(f"'{' '.join(command)}' failed: {ended.stderr.strip()[-500:]}")


@contextmanager
def running(dsn: str, pool_mode: str, folder: Path) -> Iterator[str]:
    """Start one before the database at `dsn`; yield the DSN through it."""
    binary, environment = program()
    account = server_account()
    folder = reachable_folder(folder, account)
    server = conninfo.conninfo_to_dict(dsn)
    port = ReservedPort()
    users = folder / "users.txt"
    users.write_text(f'"{server["user"]}" ""\n')
    configuration = folder / "pgbouncer.ini"
    configuration.write_text(
        "[databases]\n"
        f"* = host={server['host']} port={server['port']}\n"
        "[pgbouncer]\n"
        f"listen_addr = {LOOPBACK}\nlisten_port = {port.number}\nunix_socket_dir =\n"
        f"auth_type = trust\nauth_file = {users}\npool_mode = {pool_mode}\n"
    )
    # It refuses root, who starts it as somebody else.
    command = [str(binary), *(["-u", "nobody"] if account is not None else []), str(configuration)]
    with (folder / "pgbouncer.log").open("ab") as log:
        process = subprocess.Popen(command, env=os.environ | environment, stdout=log, stderr=log)
    try:
        log_file = folder / "pgbouncer.log"

        def listens() -> bool:
            assert process.poll() is None, f"PgBouncer did not start: {log_file.read_text()}"
            return is_listening(port.number)

        wait_until(listens, lambda: f"PgBouncer's start: {log_file.read_text()}", _START_S)
        yield f"postgresql://{server['user']}@{LOOPBACK}:{port.number}/{server['dbname']}"
    finally:
        process.kill()
        process.wait()
        port.close()


@pytest.fixture
def through_pgbouncer(postgres: PostgresServer, tmp_path: Path) -> Iterator[Callable[[str, str], str]]:
    """`through_pgbouncer(dsn, pool_mode)`: the DSN of the same database through a PgBouncer that lives as long as the test."""
    with ExitStack() as until_the_end:

        def start(dsn: str, pool_mode: str) -> str:
            try:
                return until_the_end.enter_context(
                    running(dsn, pool_mode, tmp_path / f"pgbouncer-{pool_mode}")
                )
            except NoPgBouncerError as error:
                if containers_are_a_must(os.environ):
                    raise
                pytest.skip(f"NOT RUN, because no PgBouncer can be had: {error}")

        yield start
