"""Spark starts and works on machines that lack what most have: each case is a real JVM, started as the job starts it.

The machine is made of namespaces, which root and on most systems everybody may make. Where nobody may, as in most containers, the case that
`make test` runs has only what needs none.
"""

import json
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import quote

import pytest

from spark_job.spark.jars import cache_dir, spark_connector_jars
from tests.support.paths import ROOT
from tests.support.processes.environment import without_settings

TEMPORARY = Path("/tmp")
LOST_NAME = "nonsense.invalid"
NAMESPACES = ["unshare", "--user", "--map-root-user", "--mount", "--uts"]
NAMELESS_USER = ["unshare", "--user", "--map-user=123456", "--map-group=123456"]
# What is odd, as this process finds it, and then Spark's work: Python workers, a streaming query, native code of Kafka's compression.
SCRIPT = """
import json, os, pwd, socket, tempfile
from service.settings import JobSettings
from spark_job.spark.lazy_session import LazySession
from spark_job.stream.warm_up import load_streaming, warm_up

def fails(ask, name):
    try:
        ask(name)
    except (KeyError, OSError):
        return True
    return False

found = {
    "nameless": fails(pwd.getpwuid, os.geteuid()) and "HOME" not in os.environ,
    "lost_name": fails(socket.gethostbyname, socket.gethostname()),
    "only_ipv6": {found[4][0] for found in socket.getaddrinfo("localhost", None)} == {"::1"},
    "noexec": bool(os.statvfs(tempfile.gettempdir()).f_flag & os.statvfs("/tmp").f_flag & os.ST_NOEXEC),
    "spaces": " " in os.getcwd() and " " in tempfile.gettempdir() and " " in os.environ["XDG_CACHE_HOME"],
    "stale_home": "SPARK_HOME" in os.environ,
}
lazy = LazySession(JobSettings(cache="cache", master="local[1]", driver_memory="1g"))
spark = lazy.get()
warm_up(spark, 1)
with lazy.folder.checkpoint() as checkpoint:
    load_streaming(spark, checkpoint)
snappy = spark.sparkContext._jvm.org.xerial.snappy.Snappy
assert bytes(snappy.uncompress(snappy.compress(bytearray(1_000)))) == bytes(1_000)
lazy.stop()
print(json.dumps(found))
"""


@dataclass(frozen=True)
class Machine:
    """What is odd about it. `nameless`: the user has no name and no home, as in OpenShift's containers."""

    nameless: bool = False
    lost_name: bool = False
    only_ipv6: bool = False
    noexec: bool = False
    spaces: bool = False
    stale_home: bool = False

    def needs_namespaces(self) -> bool:
        return self.nameless or self.lost_name or self.only_ipv6 or self.noexec

    def command(self, folder: Path, command: list[str]) -> list[str]:
        """Return what runs the command on such a machine, in `folder`."""
        if not self.needs_namespaces():
            return command
        name = [] if self.lost_name else [socket.gethostname()]
        (folder / "hosts").write_text(
            " ".join(["::1" if self.only_ipv6 else "127.0.0.1", "localhost", *name]) + "\n"
        )
        (folder / "nsswitch.conf").write_text("passwd: files\ngroup: files\nhosts: files\n")
        steps = [
            ["mount", "--bind", str(folder / file), f"/etc/{file}"]
            for file in ("hosts", "nsswitch.conf")
            if Path("/etc", file).exists()
        ]
        if self.lost_name:
            steps.append([sys.executable, "-c", f"import socket; socket.sethostname({LOST_NAME!r})"])
        if self.noexec:
            steps += _mounted(TEMPORARY, "noexec")
            for kept in (ROOT, Path(sys.prefix), folder / "cache"):
                steps += _mounted(kept, "exec") if kept.is_relative_to(TEMPORARY) else []
        user = NAMELESS_USER if self.nameless else []
        steps += [["cd", str(folder)], ["exec", *user, *command]]
        return [*NAMESPACES, "sh", "-ec", "\n".join(map(shlex.join, steps))]


def _mounted(folder: Path, how: str) -> list[list[str]]:
    """The folder as it is, seen through a mount of its own."""
    return [
        ["mount", "--rbind", str(folder), str(folder)],
        ["mount", "-o", f"remount,bind,nosuid,nodev,{how}", str(folder)],
    ]


def may_make_namespaces() -> bool:
    """Whether whoever runs the tests may make them, one within another, and mount."""
    if shutil.which("unshare") is None:
        return False
    within = f"mount --rbind {TEMPORARY} {TEMPORARY}; exec {shlex.join([*NAMELESS_USER, 'true'])}"
    done = subprocess.run([*NAMESPACES, "sh", "-ec", within], capture_output=True, check=False)
    return done.returncode == 0


TOGETHER = Machine(nameless=True, lost_name=True, noexec=True, spaces=True)
CASES = {
    "nameless": Machine(nameless=True),
    "lost_name": Machine(lost_name=True),
    "only_ipv6": Machine(only_ipv6=True),
    "noexec": Machine(noexec=True),
    "spaces": Machine(spaces=True),
    "stale_home": Machine(stale_home=True),
}


@pytest.mark.parametrize(
    "machine",
    [pytest.param(TOGETHER, id="together")]
    + [pytest.param(machine, id=name, marks=pytest.mark.faults) for name, machine in CASES.items()],
)
def test_spark_starts_and_works_on_an_odd_machine(machine: Machine) -> None:
    if machine == TOGETHER and not may_make_namespaces():
        machine = CASES["spaces"]
    spark_connector_jars()  # brought by whoever has a home
    # A short path, or Spark does without Unix sockets.
    with tempfile.TemporaryDirectory(
        prefix="odd machine " if machine.spaces else "odd-", dir=TEMPORARY
    ) as name:
        folder = Path(name)
        caches = folder / ("all caches" if machine.spaces else "caches")
        for made in (folder / "cache", caches):
            made.mkdir()
        (caches / "spark-outbox").symlink_to(cache_dir().parent)
        # A session in this process leaves variables of Spark's.
        environment = {n: value for n, value in without_settings().items() if not n.startswith("SPARK_")}
        environment |= {"XDG_CACHE_HOME": str(caches), "TMPDIR": name}
        if machine.nameless:
            environment.pop("HOME", None)
        if machine.stale_home:
            environment["SPARK_HOME"] = str(folder / "spark-3.5.1")
        command = machine.command(folder, [sys.executable, "-c", SCRIPT])
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=500, check=False
        )
        # As Spark would write a folder that it is given escaped.
        escaped = {quote(name)} - {name}
        assert [path for path in escaped if Path(path).exists()] == []
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == asdict(machine)
