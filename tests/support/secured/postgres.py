"""A Postgres that wants TLS and passwords: a build with OpenSSL (the wheel's has none), with a certificate of an authority of its own."""

import os
import platform
import tarfile
import tempfile
import zipfile
from pathlib import Path

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from devstack.postgres import SUPERUSER, Postgres
from devstack.processes.account import Account, reachable_copy
from devstack.processes.port import LOOPBACK
from spark_job.spark.jars import cache_dir, resolve
from tests.support.secured.authority import Authority

# The superuser is trusted, for the tests themselves; everybody else comes over TLS and with a password.
_WHO_MAY = f"""
host all {SUPERUSER} {LOOPBACK}/32 trust
hostssl all all {LOOPBACK}/32 scram-sha-256
"""


class SecuredPostgres(Postgres):
    """Its superuser is let in as always; a login needs TLS and its password."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "server", fast=True)
        authority = Authority(folder / "authority")
        self.authority = authority.certificate
        """The file by which clients know it."""
        self._key, self._certificate = authority.issue("postgres")

    def start(self) -> None:
        """Start it, and close it to all who do not come by TLS."""
        super().start()
        with psycopg.connect(self.dsn(), autocommit=True) as connection:
            ((data,),) = connection.execute("SHOW data_directory")
        home = Path(data)
        (home / "server.crt").write_bytes(self._certificate.read_bytes())
        key = home / "server.key"
        key.touch(mode=0o600)
        key.write_bytes(self._key.read_bytes())
        owner = home.stat()
        os.chown(key, owner.st_uid, owner.st_gid)
        (home / "pg_hba.conf").write_text(_WHO_MAY, "utf-8")
        self.configure("ssl", "on")

    def add_login(self, name: str, password: str, role: str) -> None:
        """Make a login with one of the outbox's roles."""
        statement = sql.SQL("CREATE ROLE {} LOGIN PASSWORD {} IN ROLE {}")
        with psycopg.connect(self.dsn(), autocommit=True) as connection:
            connection.execute(
                statement.format(sql.Identifier(name), sql.Literal(password), sql.Identifier(role))
            )

    def change_password(self, name: str, password: str) -> None:
        """Change a login's password, and end its sessions."""
        statement = sql.SQL("ALTER ROLE {} PASSWORD {}").format(sql.Identifier(name), sql.Literal(password))
        with psycopg.connect(self.dsn(), autocommit=True) as connection:
            connection.execute(statement)
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = %s", [name]
            )

    def secured_dsn(self, user: str, password: str, **changed: str) -> str:
        """DSN of a login that checks the server's certificate and name."""
        checked = {"sslmode": "verify-full", "sslrootcert": str(self.authority)} | changed
        return make_conninfo(self.dsn(), user=user, password=password, **checked)

    def _binaries(self, account: Account | None) -> Path:
        lock = Path(__file__).with_name(f"postgres-{platform.machine()}.lock")
        (archive,) = resolve(lock)
        unpacked = cache_dir().parent / "postgres-with-openssl" / archive.parent.name
        if not unpacked.exists():
            _unpack(archive, unpacked)
        return (
            reachable_copy(unpacked, ["server"], f"openssl-{archive.parent.name}", account) / "server" / "bin"
        )


def _unpack(archive: Path, folder: Path) -> None:
    """A jar with a compressed tar in it."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    # A half-made folder must never be taken for a whole one: the rename is the last step.
    with tempfile.TemporaryDirectory(prefix=".unpacked-", dir=folder.parent) as scratch:
        made = Path(scratch) / "made"
        with zipfile.ZipFile(archive) as jar:
            (name,) = (each for each in jar.namelist() if each.endswith(".txz"))
            with jar.open(name) as packed, tarfile.open(fileobj=packed, mode="r:xz") as tar:
                tar.extractall(made / "server", filter="data")
        try:
            made.rename(folder)
        except OSError:
            # Another process was faster; its copy is as good.
            if not folder.exists():
                raise
