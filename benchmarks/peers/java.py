"""Peers in Java: built by Maven into the user's cache, never into the checkout, and only when one is measured."""

import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.support.rounds import screen
from spark_job.spark.jars import java_executable

_SHARED = "common"
"""Sources that the projects beside each other have in common."""
_DONE = ".complete"
_TAIL = 30


class BuildError(RuntimeError):
    """A peer could not be built."""


@dataclass(frozen=True)
class Build:
    """A built project."""

    classes: Path
    libraries: Path

    @property
    def classpath(self) -> str:
        """As `java -cp` takes it."""
        return os.pathsep.join([str(self.classes), str(self.libraries / "*")])

    def command(self, options: Sequence[str], main: str, *arguments: str) -> list[str]:
        """Return the command that runs a class."""
        return [java_executable(), *options, "-cp", self.classpath, main, *arguments]


def build_cache() -> Path:
    """Where builds are kept: spark-outbox/peers under $XDG_CACHE_HOME, or under ~/.cache without it."""
    configured = os.environ.get("XDG_CACHE_HOME")
    return (Path(configured) if configured else Path.home() / ".cache") / "spark-outbox" / "peers"


def built(project: Path, cache: Path | None = None) -> Build:
    """Return the Maven project's build, made first where there is none of these very sources.

    Libraries are kept by the hash of pom.xml, classes by that of the sources too. Raises BuildError, JarsError without a Java.
    """
    pom = project / "pom.xml"
    folder = (cache or build_cache()) / project.name
    sources = sorted(
        each for root in (project / "src", project.parent / _SHARED) for each in root.rglob("*.java")
    )
    found = Build(
        classes=folder / f"classes-{_digest([pom, *sources])}" / "classes",
        libraries=folder / f"libraries-{_digest([pom])}",
    )
    with _locked(folder):
        if not (found.libraries / _DONE).exists():
            screen.print(f"{project.name}: fetching libraries into {found.libraries} ...")
            _maven(pom, "dependency:copy-dependencies", f"-DoutputDirectory={found.libraries}")
            (found.libraries / _DONE).touch()
        if not (found.classes / _DONE).exists():
            screen.print(f"{project.name}: compiling into {found.classes} ...")
            # A plugin may be missing on a machine that has the libraries: what was half made is not kept.
            shutil.rmtree(found.classes.parent, ignore_errors=True)
            _maven(pom, "compile", f"-Dbuild.folder={found.classes.parent}")
            (found.classes / _DONE).touch()
    return found


def write_properties(file: Path, settings: Mapping[str, str]) -> Path:
    """Write a Java properties file, and return it. Raises ValueError for what would have to be escaped."""
    for name, value in settings.items():
        if any(sign in name + value for sign in "\\\n\r") or any(sign in name for sign in " =:"):
            raise ValueError(f"{name}={value!r} would have to be escaped in a properties file")
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()), "utf-8")
    return file


def _maven(pom: Path, *arguments: str) -> None:
    executable = shutil.which("mvn")
    if executable is None:
        raise BuildError(
            f"Maven is needed to build {pom.parent}, and there is no mvn on PATH; on Debian: apt-get install maven"
        )
    # Maven would take another Java where JAVA_HOME is not set.
    environment = os.environ | {"JAVA_HOME": str(Path(java_executable()).resolve().parents[1])}
    command = [executable, "--batch-mode", "--no-transfer-progress", "-f", str(pom), *arguments]
    ran = subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if ran.returncode:
        end = "\n".join(ran.stdout.splitlines()[-_TAIL:])
        raise BuildError(f"{' '.join(command)} failed:\n{end}")


def _digest(files: Sequence[Path]) -> str:
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
