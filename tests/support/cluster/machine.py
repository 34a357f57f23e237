"""What a machine needs for a node, and the installation of what it lacks."""

import os
import platform
import shutil
from collections.abc import Callable
from pathlib import Path

from tests.support.cluster.errors import ClusterError
from tests.support.engine.errors import EngineError
from tests.support.engine.install import install

# Program -> the Debian package that brings it.
_PACKAGES = {
    "containerd": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    "iptables": "iptables",
    "ipset": "ipset",
    "conntrack": "conntrack",
    "/usr/lib/cni/bridge": "containernetworking-plugins",
    "gcc": "gcc",
    "openssl": "openssl",
}


def prepare(say: Callable[[str], None]) -> None:
    """Install what is missing, after a line to `say`. Raises ClusterError where this machine cannot have a node."""
    if platform.system() != "Linux" or os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise ClusterError("a node of our own needs root on Debian")
    if not Path("/sys/fs/cgroup/memory").exists():
        raise ClusterError(
            "a node of our own was made for version 1 of control groups, which this machine does not mount"
        )
    packages = {package for program, package in _PACKAGES.items() if shutil.which(program) is None}
    if packages:
        try:
            install(sorted(packages), say)
        except EngineError as error:
            raise ClusterError(str(error)) from error
