"""The packages that an engine of our own needs, installed by apt. They stay; their services are not started."""

import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.support.engine.errors import EngineError
from tests.support.engine.machine import WAY_OUT

# What Debian's packages ask before they start a service (invoke-rc.d). 101: not allowed.
_POLICY = Path("/usr/sbin/policy-rc.d")
_NOTHING_STARTS = "#!/bin/sh\n# The tests of spark-outbox install packages; removed afterwards.\nexit 101\n"
_LOCK_TIMEOUT_S = 300
_LAST_CHARACTERS = 3000


def install(packages: Sequence[str], say: Callable[[str], None]) -> None:
    """Install Debian packages, having said so. Raises EngineError with apt's last words when that fails."""
    say(
        f"Installing {', '.join(packages)} with apt, to start a container engine for the tests that need one "
        "(the packages stay; OUTBOX_TEST_ENGINE=none forbids it)."
    )
    with nothing_starts(_POLICY):
        _apt("update")
        _apt("install", "--no-install-recommends", *packages)


@contextmanager
def nothing_starts(policy: Path) -> Iterator[None]:
    """Within the block no package starts its service. `policy` is ours for that time; another one that is there decides instead."""
    # One with our words is of an installation that was killed.
    ours = not policy.exists() or policy.read_text("utf-8") == _NOTHING_STARTS
    if ours:
        policy.write_text(_NOTHING_STARTS, "utf-8")
        policy.chmod(0o755)
    try:
        yield
    finally:
        if ours:
            policy.unlink(missing_ok=True)


def _apt(*arguments: str) -> None:
    command = ["apt-get", "-qq", "-o", f"DPkg::Lock::Timeout={_LOCK_TIMEOUT_S}", *arguments]
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            command,
            env=os.environ | {"DEBIAN_FRONTEND": "noninteractive"},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            # Ctrl-C ends us, but not dpkg half way: we wait for it in any case.
            start_new_session=True,
        )
        try:
            process.wait()
        finally:
            process.wait()
        output.seek(0)
        said = output.read().decode(errors="replace")[-_LAST_CHARACTERS:].strip()
    if process.returncode != 0:
        raise EngineError(f"'{' '.join(command)}' failed:\n{said}\n{WAY_OUT}")
