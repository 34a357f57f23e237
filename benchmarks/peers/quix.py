"""Quix Streams: a Python application of our own (quix_app.py), exactly once, in an environment of its own outside the checkout."""

import fcntl
import json
import subprocess
import sys
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from benchmarks.peers.contender import Work
from benchmarks.peers.java import BuildError, build_cache
from benchmarks.peers.process import SingleProcess, started
from benchmarks.support.rounds import screen

PART = "job"
VERSION = "3.28.1"
_APP = Path(__file__).with_name("quix_app.py")
_DONE = ".complete"
_CONSUMER = {
    "fetch.wait.max.ms": 10,
    "max.partition.fetch.bytes": 4 * 1024 * 1024,
    "fetch.max.bytes": 64 * 1024 * 1024,
    "session.timeout.ms": 10_000,
}
_PRODUCER = {"compression.type": "lz4", "linger.ms": 5, "batch.size": 256 * 1024}


def interpreter() -> Path:
    """Return a Python that has quixstreams, installed first where there is none. Raises BuildError."""
    folder = build_cache() / f"quix-{VERSION}-py{sys.version_info.major}{sys.version_info.minor}"
    folder.mkdir(parents=True, exist_ok=True)
    python = folder / "bin" / "python"
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / _DONE).exists():
            screen.print(f"quix: installing quixstreams {VERSION} into {folder} ...")
            venv.create(folder, with_pip=True)
            command = [
                str(python),
                "-m",
                "pip",
                "install",
                "--quiet",
                "--disable-pip-version-check",
                f"quixstreams=={VERSION}",
            ]
            ran = subprocess.run(command, capture_output=True, text=True, check=False)
            if ran.returncode:
                raise BuildError(f"quixstreams {VERSION} could not be installed: {ran.stderr.strip()}")
            (folder / _DONE).touch()
    return python


@dataclass(frozen=True)
class Quix:
    """One setting of the application."""

    commit_s: float = 1.0

    @property
    def name(self) -> str:
        """As it stands in tables."""
        return f"Quix Streams, {self.commit_s:g} s"

    @contextmanager
    def running(self, work: Work) -> Iterator[SingleProcess]:
        """Run one process. It has one thread: more would be more processes, which this does not start."""
        python = interpreter()
        file = work.folder / "quix.json"
        file.write_text(json.dumps(self._settings(work)), "utf-8")
        with started(
            SingleProcess(PART, lambda: [str(python), str(_APP), str(file)], work.folder / "quix.log")
        ) as process:
            yield process

    def _settings(self, work: Work) -> dict[str, object]:
        group = f"quix-{uuid4().hex[:12]}"
        return {
            "input": work.input_topic,
            "output": work.output_topic,
            "application": {
                "broker_address": work.bootstrap_servers,
                "consumer_group": group,
                "auto_offset_reset": "earliest",
                "commit_interval": self.commit_s,
                "auto_create_topics": True,
                "state_dir": str(work.folder / "state"),
                # A static member that is killed and started again gets its partitions back at once.
                "consumer_extra_config": _CONSUMER | {"group.instance.id": group},
                "producer_extra_config": _PRODUCER,
                "loglevel": "WARNING",
            },
        }
