"""The commands of both services as processes of their own, with nobody at the terminal."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.support.paths import ROOT
from tests.support.processes.environment import without_settings


def start_command(
    module: str, *arguments: str, variables: Mapping[str, str], folder: Path = ROOT
) -> "subprocess.Popen[str]":
    """Start `<module> <arguments>` with these OUTBOX_ variables."""
    return subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        cwd=folder,
        env=without_settings() | dict(variables),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run_command(
    module: str,
    *arguments: str,
    variables: Mapping[str, str],
    folder: Path = ROOT,
    timeout_s: float = 120.0,
) -> "subprocess.CompletedProcess[str]":
    """Run it to its end, whatever that is. Raises TimeoutExpired, and the process is killed then."""
    with start_command(module, *arguments, variables=variables, folder=folder) as process:
        try:
            output, explanation = process.communicate(timeout=timeout_s)
        finally:
            process.kill()  # or leaving the block would wait for it
    return subprocess.CompletedProcess(process.args, process.returncode, output, explanation)
