"""A Python environment as an archive, for executors that have nothing of ours: what docs/cluster.md tells people to make."""

import os
import subprocess
import sys
from pathlib import Path

from tests.support.paths import ROOT


def packed_environment(folder: Path) -> Path:
    """Make environment.tar.gz there, with what requirements/executor.txt names."""
    environment, archive = folder / "environment", folder / "environment.tar.gz"
    uv = [sys.executable, "-m", "uv"]
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    for command in (
        [*uv, "venv", "--relocatable", "--no-project", "--python", version, str(environment)],
        [*uv, "pip", "install", "--python", str(environment), "-r", "requirements/executor.txt"],
        ["tar", "-czf", str(archive), "-C", str(environment), "."],
    ):
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "UV_QUIET": "1"}
        )
        assert done.returncode == 0, f"{command}: {done.stderr}"
    return archive
