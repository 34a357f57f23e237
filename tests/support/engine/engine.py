"""A container engine for tests: one that runs here, else one of our own."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from spark_job.spark.jars import cache_dir
from tests.support.engine import daemon
from tests.support.engine.errors import EngineError
from tests.support.engine.install import install
from tests.support.engine.machine import WAY_OUT, Machine

OWN_VARIABLE = "OUTBOX_TEST_ENGINE"
_LOCAL = "unix://"
_LAST_CHARACTERS = 3000


class Engine:
    """An engine that answers. `is_ours`: started by us, for this run, with nothing of anybody else's on it."""

    def __init__(self, environment: Mapping[str, str], *, is_ours: bool) -> None:
        """`environment`: the whole environment for programs that talk to it, DOCKER_HOST among it."""
        self.environment = dict(environment)
        self.is_ours = is_ours
        self.stand_ins: dict[str, str] = {}
        """Official name -> what takes the image's place on this engine."""

    def run(
        self,
        *arguments: str,
        cwd: Path | None = None,
        stdin: str | None = None,
        environment: Mapping[str, str] | None = None,
        timeout_s: float = 600.0,
        check: bool = True,
    ) -> subprocess.CompletedProcess[str]:
        """Run `docker ARGUMENTS` on this engine and return its exit code and output; `environment` is added to ours.

        Raises EngineError with the end of its output when it fails (unless not `check`) or takes longer than `timeout_s`.
        """
        command = ["docker", *arguments]
        try:
            result = subprocess.run(
                command,
                cwd=cwd,
                input=stdin,
                env=self.environment | dict(environment or {}),
                timeout=timeout_s,
                capture_output=True,
                text=True,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise EngineError(f"'{' '.join(command)}' took longer than {timeout_s:g} s") from error
        if check and result.returncode != 0:
            said = (result.stdout + result.stderr)[-_LAST_CHARACTERS:].strip()
            raise EngineError(f"'{' '.join(command)}' failed with exit code {result.returncode}:\n{said}")
        return result

    def image(self, official: str) -> str:
        """The name under which this engine has an image: the official one, or its stand-in's."""
        return self.stand_ins.get(official, official)

    def has_image(self, name: str) -> bool:
        """Whether the engine has an image of this name."""
        return self.run("image", "inspect", name, check=False).returncode == 0

    def label(self, image: str, name: str) -> str | None:
        """An image's label of this name, None where image or label is missing."""
        result = self.run(
            "image", "inspect", "--format", f'{{{{index .Config.Labels "{name}"}}}}', image, check=False
        )
        return result.stdout.strip() or None if result.returncode == 0 else None


def engine_cache() -> Path:
    """Where an engine's images, Compose and the base system are kept: containers/ beside the jars of the user's cache."""
    return cache_dir().parent / "containers"


def _to_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


@contextmanager
def open_engine(
    environment: Mapping[str, str] | None = None, say: Callable[[str], None] = _to_stderr
) -> Iterator[Engine]:
    """The engine that answers where DOCKER_HOST or Docker's context leads; else one of our own for the block's time.

    OUTBOX_TEST_ENGINE=own asks for one of our own in any case, =none for none. `say` gets a line for the person before
    anything is installed. Raises EngineError with the reason and the way out where none can be had.
    """
    environment = dict(os.environ if environment is None else environment)
    wish = _wish(environment)
    address = _address(environment)
    if not wish and address is not None:
        if not address.startswith(_LOCAL):
            raise EngineError(
                f"Docker leads to {address}, and the tests reach containers on this machine's 127.0.0.1 only. Set DOCKER_HOST to "
                f"an engine here ({_LOCAL}/...), or {OWN_VARIABLE}=own."
            )
        # docker-py, which testcontainers uses, knows nothing of contexts.
        environment["DOCKER_HOST"] = address
        if _answers(environment):
            yield Engine(environment, is_ours=False)
            return
    try:
        prepare(environment, say)
    except EngineError as error:
        if wish:
            raise
        where = f" on {address}" if address else ""
        raise EngineError(f"No container engine answers{where}, and {error}") from error
    with daemon.running(
        engine_cache(), lambda address: _answers(environment | {"DOCKER_HOST": address})
    ) as address:
        engine = Engine(environment | {"DOCKER_HOST": address}, is_ours=True)
        _empty(engine)
        yield engine


def prepare(environment: Mapping[str, str], say: Callable[[str], None] = _to_stderr) -> None:
    """Make the machine ready for an engine of our own: what is missing is installed, after a line to `say`.

    Raises EngineError with the reason where that is impossible, or forbidden by OUTBOX_TEST_ENGINE=none.
    """
    _wish(environment)
    machine = Machine.this()
    obstacle = machine.obstacle()
    if obstacle is not None:
        raise EngineError(f"{obstacle} {WAY_OUT}")
    if machine.missing:
        install(machine.packages(), say)


def _wish(environment: Mapping[str, str]) -> str:
    wish = environment.get(OWN_VARIABLE, "")
    if wish == "none":
        raise EngineError(f"{OWN_VARIABLE} is 'none': no container engine is used, and none is installed.")
    if wish not in ("", "own"):
        raise EngineError(
            f"{OWN_VARIABLE} is {wish!r}; it can be 'own', 'none', or unset for any engine that answers"
        )
    return wish


def _empty(engine: Engine) -> None:
    """Remove what a killed run left in this engine's folder. Images stay."""
    left = engine.run("ps", "--all", "--quiet").stdout.split()
    if left:
        engine.run("rm", "--force", "--volumes", *left)
    engine.run("network", "prune", "--force")
    volumes = engine.run("volume", "ls", "--quiet").stdout.split()
    if volumes:
        engine.run("volume", "rm", "--force", *volumes)


def _address(environment: Mapping[str, str]) -> str | None:
    """Where `docker` leads: to DOCKER_HOST, else to its context. None where neither is known."""
    host = environment.get("DOCKER_HOST")
    if host or shutil.which("docker", path=environment.get("PATH")) is None:
        return host or None
    command = ["docker", "context", "inspect", "--format", "{{.Endpoints.docker.Host}}"]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return result.stdout.strip() or None if result.returncode == 0 else None


def _answers(environment: Mapping[str, str]) -> bool:
    if shutil.which("docker", path=environment.get("PATH")) is None:
        return False
    command = ["docker", "version", "--format", "{{.Server.Version}}"]
    try:
        return (
            subprocess.run(command, env=environment, capture_output=True, timeout=20, check=False).returncode
            == 0
        )
    except subprocess.TimeoutExpired:
        return False
