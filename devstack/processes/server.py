"""What all local servers have in common: a folder, a port and a life."""

import signal
from abc import ABC, abstractmethod
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from devstack.processes.errors import DevstackError
from devstack.processes.port import ReservedPort
from devstack.processes.process import ServerProcess

STOP_TIMEOUT_S = 30.0


class LocalServer(ABC):
    """One server on one data directory and one loopback port, both kept over stop, kill and start.

    It dies with the process that started it, even by `kill -9`, unless it is detached.
    """

    name: str
    stop_signal: ClassVar[signal.Signals]
    start_timeout_s: ClassVar[float]

    def __init__(
        self, data_dir: Path, *, port: int = 0, detached: bool = False, running: ServerProcess | None = None
    ) -> None:
        """Describe a server; nothing is started.

        `port` is taken if free (0: any). `detached` lets the server outlive this process. `running` adopts
        the process that an earlier one left on this directory and port.
        """
        self.data_dir = data_dir.resolve()
        self.log = self.data_dir / "server.log"
        self._detached = detached
        self._process = running
        self._wanted_port = port
        self._port: ReservedPort | None = None

    @property
    def port(self) -> int:
        """The TCP port, the same for the whole life of this object."""
        if self._port is None and self.is_running():
            return self._wanted_port
        if self._port is None:
            self._port = ReservedPort(self._wanted_port)
        return self._port.number

    @property
    def process(self) -> ServerProcess:
        """The server's process. Raises DevstackError when it was not started."""
        if self._process is None:
            raise DevstackError(f"{self.name} on {self.data_dir} was not started: call start() first")
        return self._process

    @property
    def key(self) -> str:
        """The name, in a form for files and fields."""
        return self.name.lower().replace(" ", "-")

    def is_running(self) -> bool:
        """Whether the server's process is alive (a paused one counts)."""
        return self._process is not None and self._process.is_alive()

    def start(self) -> None:
        """Start the server, initialising its data if there is none, and return when it answers clients.

        Does nothing when it runs. Raises DevstackError with the tail of its log when it does not come up.
        """
        if self.is_running():
            return
        # A server that died by itself has left a guardian to collect.
        self.kill()
        self.data_dir.mkdir(parents=True, exist_ok=True)
        self._process = self._launch()
        try:
            self._process.wait_until(self._answers, timeout_s=self.start_timeout_s)
        except BaseException:
            self._process.kill()
            raise

    def stop(self) -> None:
        """Clean shutdown; a server that takes longer than 30 s for it is killed. Data and port stay."""
        if self._process is not None:
            self._process.terminate(self.stop_signal, timeout_s=STOP_TIMEOUT_S)

    def kill(self) -> None:
        """SIGKILL to every process of the server. Data and port stay."""
        if self._process is not None:
            self._process.kill()

    def restart(self) -> None:
        """Stop and start again, on the same data and port."""
        self.stop()
        self.start()

    def pause(self) -> None:
        """SIGSTOP to every process of the server: connections stay open, nothing answers."""
        self.process.pause()

    def resume(self) -> None:
        """Let a paused server continue."""
        self.process.resume()

    def destroy(self) -> None:
        """Kill the server, delete its data and give its port back."""
        self.kill()
        self._delete_data()
        if self._port is not None:
            self._port.close()
            self._port = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @abstractmethod
    def _launch(self) -> ServerProcess:
        """Prepare the data and start the process."""

    @abstractmethod
    def _answers(self) -> bool:
        """Whether a client gets an answer."""

    @abstractmethod
    def _delete_data(self) -> None:
        """Remove what the server stored."""
