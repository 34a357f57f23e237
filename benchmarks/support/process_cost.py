"""What one process has used so far."""

from pathlib import Path

import psutil

from devstack.processes.process import ServerProcess


def cpu_s(process: ServerProcess) -> float:
    """Seconds of CPU, its threads' included."""
    times = psutil.Process(process.identity.pid).cpu_times()
    return times.user + times.system


def peak_mb(process: ServerProcess | None = None) -> float:
    """Most memory that a process had at once, in MB; of this one without."""
    status = Path(f"/proc/{'self' if process is None else process.identity.pid}/status").read_text("utf-8")
    return int(status.split("VmHWM:")[1].split()[0]) / 1024
