"""What this machine has for running containers, and why an engine of our own cannot be started on it."""

import os
import platform
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

# Program -> the Debian package that brings it.
PACKAGES: Mapping[str, str] = {
    "docker": "docker.io",
    "dockerd": "docker.io",
    "containerd": "docker.io",
    "iptables": "iptables",
    "debootstrap": "debootstrap",
}
# PID and mount namespaces that end with the first process in them.
IN_NAMESPACES = ("unshare", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc")
WAY_OUT = (
    "Start a Docker engine (or set DOCKER_HOST to one that runs on this machine), or run this as root on Debian, "
    "where it installs and starts one by itself."
)


@dataclass(frozen=True)
class Machine:
    """What decides whether we can start an engine: `missing` are the programs of PACKAGES that are not on the PATH."""

    system: str
    is_root: bool
    has_apt: bool
    has_cgroups: bool
    may_unshare: bool
    missing: frozenset[str] = frozenset()

    @classmethod
    def this(cls) -> "Machine":
        """The machine we run on."""
        return cls(
            system=platform.system(),
            is_root=os.geteuid() == 0,
            has_apt=shutil.which("apt-get") is not None,
            has_cgroups=_has_cgroups(Path("/proc/self/mounts")),
            may_unshare=_runs(*IN_NAMESPACES, "true"),
            missing=frozenset(program for program in PACKAGES if shutil.which(program) is None),
        )

    def packages(self) -> list[str]:
        """The Debian packages that bring what is missing."""
        return sorted({PACKAGES[program] for program in self.missing})

    def obstacle(self) -> str | None:
        """Why no engine can be started here, as a sentence; None where nothing is known to stand in the way."""
        if self.system != "Linux":
            return f"an engine of our own needs Linux, this is {self.system}."
        if not self.is_root:
            return "an engine of our own needs root, and this is an ordinary user."
        if not self.has_cgroups:
            return "no control groups are mounted under /sys/fs/cgroup, which containers need."
        if self.missing and not self.has_apt:
            return f"there is no apt-get to install what one needs: {', '.join(sorted(self.missing))}."
        if not self.may_unshare:
            return "this machine does not let us make namespaces and mounts, which containers need."
        return None


def _runs(*command: str) -> bool:
    return (
        shutil.which(command[0]) is not None
        and subprocess.run(command, capture_output=True, check=False).returncode == 0
    )


def _has_cgroups(mounts: Path) -> bool:
    if not mounts.exists():
        return False
    return any(line.split()[2] in ("cgroup", "cgroup2") for line in mounts.read_text().splitlines())
