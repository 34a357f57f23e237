"""`spark-job run` and `publisher run` as real processes, started, signalled and killed from outside."""

import os
import signal
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

import psutil

from devstack.processes.process import ServerProcess, launch
from tests.support.processes.environment import without_settings
from tests.support.waiting import LONG_DEADLINE_S, wait_until

_LOG_LINES = 60
_REASON_LINES = 5
_SIGNALS_FROM = 256 - 64
_STACKS_S = 20.0


class Service:
    """One of the two services, which may live several times. It dies with the test, whatever happens.

    A `with` block starts it, and kills what is left of it at its end.
    """

    def __init__(
        self, module: str, environment: Mapping[str, str], log: Path, python: Path = Path(sys.executable)
    ) -> None:
        """`environment`: the OUTBOX_ settings. `python`: the interpreter, of another installation."""
        self.module = module
        self.launcher: Sequence[str] = (str(python), "-m", module)
        """The words before `run`."""
        self._environment = environment
        self._log = log
        self._process: ServerProcess | None = None

    def start(self, *options: str, **settings: str) -> None:
        """Start `<module> run <options>`; `settings` are OUTBOX_ variables of this life only."""
        assert not self.is_alive(), f"{self.module} runs already"
        command = [*self.launcher, "run", *options]
        environment = {"PYTHONFAULTHANDLER": "1"} | without_settings() | dict(self._environment) | settings
        self._process = launch(self.module, command, log=self._log, environment=environment)

    @property
    def pid(self) -> int:
        """Of the life that was started last."""
        return self._started().identity.pid

    def is_alive(self) -> bool:
        """Whether it runs; a stopped process does."""
        return self._process is not None and self._process.is_alive()

    def kill(self) -> None:
        """SIGKILL to the one process that was started. What it started itself must end by itself."""
        os.kill(self.pid, signal.SIGKILL)
        wait_until(lambda: not self.is_alive(), f"the end of {self.module}", LONG_DEADLINE_S)
        try:
            wait_until(
                lambda: not self.processes(),
                lambda: f"{self.module} left these behind: {self.processes()}",
                LONG_DEADLINE_S,
            )
        finally:
            self.destroy()

    def crash(self) -> None:
        """SIGKILL to the process and all that it started, at once: the machine's power fails."""
        for process in self.processes():
            with suppress(psutil.NoSuchProcess):  # it may end at this moment by itself
                process.send_signal(signal.SIGKILL)
        wait_until(lambda: not self.processes(), f"the end of {self.module}", LONG_DEADLINE_S)
        self.destroy()

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal to the one process that was started, and wait for nothing."""
        os.kill(self.pid, number)

    def terminate(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send SIGTERM, or another signal that asks for an end in order; return the exit code."""
        self.send_signal(number)
        return self.wait()

    def wait(self, timeout_s: float = LONG_DEADLINE_S) -> int:
        """Wait for the end of it and all that it started, and return the exit code; -9 after SIGKILL, as `subprocess` has it."""
        process = self._started()
        assert process.guardian is not None
        wait_until(lambda: not self.processes(), self.post_mortem, timeout_s)
        code = process.guardian.wait(timeout_s)
        self.destroy()
        # The guardian ends with what is left of a negative number in a byte.
        return code - 256 if code >= _SIGNALS_FROM else code

    def pause(self) -> None:
        """SIGSTOP to it and all that it started."""
        self._started().pause()

    def resume(self) -> None:
        """SIGCONT to it and all that it started."""
        self._started().resume()

    def started(self, name: str) -> psutil.Process:
        """The process of that name that it started."""
        named = {process.pid: process for process in self.processes() if _name(process) == name}
        # A process that is about to run a program is for a moment a second one of its parent's name.
        found = [process for process in named.values() if _parent(process) not in named]
        assert len(found) == 1, f"{self.module} runs {found}, wanted one {name}"
        return found[0]

    def log(self) -> str:
        """All that it printed, in all its lives."""
        return self._log.read_text("utf-8", "replace") if self._log.exists() else ""

    def tail(self) -> str:
        """The end of that, for the messages of failed tests; from the reason on where the process died in C code."""
        lines = self.log().splitlines()
        deaths = [number for number, line in enumerate(lines) if line.startswith("Fatal Python error")]
        # An assertion's own line stands before it, the stacks of all threads behind it.
        begin = min([len(lines) - _LOG_LINES, *(number - _REASON_LINES for number in deaths[-1:])])
        shown = lines[max(0, begin) :]
        return f"{self.module} {'runs' if self.is_alive() else 'does not run'}:\n" + "\n".join(shown)

    def post_mortem(self) -> str:
        """The end of the log and the stacks of all its threads, which end it: for the message of a test that has failed."""
        message, printed = self.tail(), len(self.log())
        processes = self.processes()
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                # Java prints its stacks and lives on; Python prints them and dies (PYTHONFAULTHANDLER).
                process.send_signal(signal.SIGQUIT if process.name() == "java" else signal.SIGABRT)
                process.resume()
        psutil.wait_procs([each for each in processes if _name(each) != "java"], _STACKS_S)
        return f"{message}\n{self.log()[printed:]}"

    def destroy(self) -> None:
        """End whatever is left of it."""
        for process in self.processes():
            process.kill()
        if self._process is not None:
            self._process.kill()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.destroy()

    def _started(self) -> ServerProcess:
        assert self._process is not None, f"{self.module} was never started"
        return self._process

    def processes(self) -> Sequence[psutil.Process]:
        """It and all that it started, orphans too: `launch` gives each service a session of its own."""
        return [] if self._process is None else _members(self._process.identity.pid)


def _members(session: int) -> list[psutil.Process]:
    found = []
    for pid in psutil.pids():
        try:
            if os.getsid(pid) == session:
                process = psutil.Process(pid)
                if process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        except (ProcessLookupError, psutil.NoSuchProcess):
            continue
    return found


def _name(process: psutil.Process) -> str | None:
    try:
        return str(process.name())
    except psutil.NoSuchProcess:
        return None


def _parent(process: psutil.Process) -> int | None:
    try:
        return int(process.ppid())
    except psutil.NoSuchProcess:
        return None


def while_alive(
    condition: Callable[[], object], what: str, services: Iterable[Service]
) -> Callable[[], object]:
    """Return the condition, which fails at once when one of the services ends before it holds."""

    def holds() -> object:
        for service in services:
            assert service.is_alive(), f"{what} did not happen, because {service.tail()}"
        return condition()

    return holds
