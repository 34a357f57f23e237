"""Wheels of this tree and of older ones, each installed in an environment that has nothing else of the project."""

import os
import subprocess
import sys
import tarfile
import venv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.paths import ROOT
from tests.support.processes.environment import without_settings

PREVIOUS = "fa8148deb076cf37992f3d63b02698c7cecf3af3"
"""The release before this one: its tag. There is none yet, so it is the last commit of main before the newest schema revision."""


@dataclass(frozen=True)
class Installed:
    """A wheel in a virtual environment of its own.

    Its dependencies are those of this interpreter, found behind it on the path. So nothing is downloaded, and what a wheel forgets
    to bring is missing, because the checkout is not on the path.
    """

    folder: Path
    wheel: Path

    @property
    def python(self) -> Path:
        """The interpreter that imports this wheel."""
        return self.folder / "bin" / "python"

    @property
    def version(self) -> str:
        """As the wheel's name has it."""
        return self.wheel.name.split("-")[1]

    def run(
        self, command: str, *arguments: str, folder: Path, variables: Mapping[str, str] | None = None
    ) -> "subprocess.CompletedProcess[str]":
        """Run one of its commands in a folder to its end, whatever that is."""
        return subprocess.run(
            [self.folder / "bin" / command, *arguments],
            cwd=folder,
            env=environment() | dict(variables or {}),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )


def environment() -> dict[str, str]:
    """This process's environment without the checkout and without any setting of the outbox."""
    found = without_settings()
    del found["PYTHONPATH"]
    return found


def install(tree: Path, folder: Path) -> Installed:
    """Build the wheel of a tree, by the build backend that it names, and install it below `folder`."""
    wheels, home = folder / "wheels", folder / "environment"
    _pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(wheels), str(tree))
    (wheel,) = wheels.glob("*.whl")
    venv.create(home, symlinks=True)
    _pip("--python", str(home), "install", "--no-deps", "--no-index", str(wheel))
    (packages,) = home.glob("lib/python*/site-packages")
    # Folders that a .pth file names are searched last, and their own .pth files, such as that of an editable install, are not read.
    others = [path for path in sys.path if path.endswith("site-packages")]
    (packages / "dependencies.pth").write_text("\n".join(others) + "\n")
    return Installed(home, wheel)


def tree_of(commit: str, folder: Path) -> Path:
    """Unpack the files of a commit, which the repository's history must have."""
    archive = folder.with_suffix(".tar")
    done = subprocess.run(
        ["git", "archive", "-o", archive, commit], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, (
        f"this test needs commit {commit}, which a shallow clone does not have (git fetch --unshallow): {done.stderr}"
    )
    with tarfile.open(archive) as content:
        content.extractall(folder, filter="data")
    return folder


def _pip(*arguments: str) -> None:
    command: Sequence[str] = [
        sys.executable,
        "-m",
        "pip",
        "--quiet",
        "--disable-pip-version-check",
        *arguments,
    ]
    done = subprocess.run(command, env=dict(os.environ), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
