"""The two services as real processes, started, killed and started again."""

import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from devstack.processes.process import ServerProcess, launch

_STOP_TIMEOUT_S = 60.0


@dataclass
class Service:
    """One console script of this installation. It dies with the demo, however the demo ends."""

    name: str
    log: Path
    config: Path
    environment: Mapping[str, str]
    kills: int = 0
    _process: ServerProcess | None = field(default=None, repr=False)

    def start(self) -> None:
        """Start `<name> run`. Raises DevstackError when it cannot be executed."""
        script = Path(sys.executable).with_name(self.name)
        command = [str(script), "run", "--config", str(self.config)]
        self._process = launch(self.name, command, log=self.log, environment=self.environment)

    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and self._process.is_alive()

    def kill(self) -> int:
        """SIGKILL to it and everything under it (the job's JVM and Python workers). Returns its pid."""
        assert self._process is not None
        pid = self._process.identity.pid
        self._process.kill()
        self.kills += 1
        return pid

    def kill_if_alive(self) -> None:
        """SIGKILL if it still runs: the last resort of the clean-up."""
        if self._process is not None:
            self._process.kill()

    def stop(self) -> None:
        """SIGTERM, and SIGKILL if that takes longer than a minute. Harmless when it does not run."""
        if self._process is not None:
            self._process.terminate(signal.SIGTERM, timeout_s=_STOP_TIMEOUT_S)


def clean_environment(settings: Mapping[str, str]) -> dict[str, str]:
    """This process's environment with these OUTBOX_ settings and no others: the demo touches only its own servers."""
    kept = {name: value for name, value in os.environ.items() if not name.upper().startswith("OUTBOX_")}
    return kept | dict(settings)
