"""A server process: started through the guardian, recognised again by pid and birth, signalled as a whole."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from devstack.processes.account import Account
from devstack.processes.errors import DevstackError, tail

_GUARDIAN = Path(__file__).with_name("guardian.py")
_POLL_S = 0.02
_KILL_TIMEOUT_S = 30.0


@dataclass(frozen=True)
class ProcessIdentity:
    """Which process, for ever: a recycled pid has another birth."""

    pid: int
    birth: str

    def is_alive(self) -> bool:
        """Whether this very process still runs (a stopped one counts)."""
        return birth(self.pid) == self.birth


def birth(pid: int) -> str | None:
    """When a process was born, as a mark that no other process with this pid shares; None when it is gone.

    On Linux it is the boot's id and the start in clock ticks, which do not move when the clock is set.
    A zombie counts as gone: nothing of it runs.
    """
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        stat = Path(f"/proc/{pid}/stat")
        if not stat.exists():
            return str(process.create_time())
        ticks = stat.read_text("utf-8", "replace").rpartition(")")[2].split()[19]
    except (psutil.NoSuchProcess, FileNotFoundError, ProcessLookupError):
        return None
    return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()}/{ticks}"


@dataclass
class ServerProcess:
    """One running server and, unless it is detached, the guardian that ties its life to ours."""

    name: str
    identity: ProcessIdentity
    log: Path
    guardian: subprocess.Popen[str] | None = field(default=None, repr=False)

    def is_alive(self) -> bool:
        """Whether this very process still runs (a stopped one counts)."""
        return self.identity.is_alive()

    def wait_until(self, ready: Callable[[], bool], *, timeout_s: float) -> None:
        """Poll `ready` until it holds; DevstackError with the log's tail if the server dies or time is up."""
        deadline = time.monotonic() + timeout_s
        while not ready():
            if not self.is_alive():
                raise DevstackError(f"{self.name} ended while starting; {tail(self.log)}")
            if time.monotonic() > deadline:
                raise DevstackError(f"{self.name} was not ready after {timeout_s:g} s; {tail(self.log)}")
            time.sleep(_POLL_S)

    def terminate(self, with_signal: signal.Signals, *, timeout_s: float) -> None:
        """Ask the server to end; kill it if it has not within the time."""
        if self.is_alive():
            self.resume()
            self._signal(self._tree()[:1], with_signal)
            _wait_gone([self.identity], timeout_s)
        self.kill()

    def kill(self) -> None:
        """SIGKILL to the server and everything under it, stopped or not; DevstackError if that fails."""
        if self.is_alive():
            # Listed before the first signal: the children of a dead process belong to someone else.
            victims = self._tree()
            identities = [ProcessIdentity(v.pid, born) for v in victims if (born := birth(v.pid))]
            self._signal(victims, signal.SIGKILL)
            alive = _wait_gone(identities, _KILL_TIMEOUT_S)
            if alive:
                raise DevstackError(f"{self.name}: process {alive[0].pid} survived SIGKILL")
        if self.guardian is not None:
            assert self.guardian.stdin is not None
            self.guardian.stdin.close()
            self.guardian.wait()

    def pause(self) -> None:
        """SIGSTOP to the server and everything under it: connections stay open, nothing answers.

        Raises DevstackError when it is not running.
        """
        if not self.is_alive():
            raise DevstackError(f"{self.name} (pid {self.identity.pid}) is not running; {tail(self.log)}")
        stopped: set[psutil.Process] = set()
        # Again until nothing new turns up: a child may be forked between listing and stopping.
        while fresh := [process for process in self._tree() if process not in stopped]:
            self._signal(fresh, signal.SIGSTOP)
            stopped.update(fresh)

    def resume(self) -> None:
        """SIGCONT to the server and everything under it; harmless when it is not paused."""
        self._signal(self._tree(), signal.SIGCONT)

    def _tree(self) -> list[psutil.Process]:
        """The server and everything under it; empty when it is gone."""
        if not self.is_alive():
            return []
        with suppress(psutil.NoSuchProcess):
            root = psutil.Process(self.identity.pid)
            return [root, *root.children(recursive=True)]
        return []

    def _signal(self, processes: list[psutil.Process], number: signal.Signals) -> None:
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                try:
                    process.send_signal(number)
                except psutil.AccessDenied as error:
                    raise DevstackError(
                        f"{self.name} (pid {process.pid}) belongs to {process.username()}: "
                        "run this as the user who started it"
                    ) from error


def launch(
    name: str,
    command: Sequence[str],
    *,
    log: Path,
    environment: Mapping[str, str] | None = None,
    account: Account | None = None,
    detached: bool = False,
) -> ServerProcess:
    """Start a server, its output appended to `log`. It dies with this process unless `detached`.

    Raises DevstackError with the log's tail when the command cannot be executed.
    """
    options = ["--detach"] if detached else []
    if account is not None:
        options += ["--user", f"{account.uid}:{account.gid}"]
    with log.open("a") as output:
        guardian = subprocess.Popen(
            [sys.executable, "-I", "-S", str(_GUARDIAN), *options, "--", *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=output,
            env=environment,
            # A Ctrl-C for the caller must not end the guardian before the caller has stopped its servers.
            start_new_session=True,
            text=True,
        )
    assert guardian.stdout is not None
    assert guardian.stdin is not None
    with guardian.stdout as answer:
        pid = answer.readline().strip()
    born = birth(int(pid)) if pid else None
    if detached or born is None:
        guardian.stdin.close()
        guardian.wait()
    if born is None:
        raise DevstackError(f"{name} ended while starting; {tail(log)}")
    identity = ProcessIdentity(int(pid), born)
    return ServerProcess(name, identity, log, None if detached else guardian)


def _wait_gone(identities: list[ProcessIdentity], timeout_s: float) -> list[ProcessIdentity]:
    """Wait for processes to end; returns those that still run when the time is up."""
    deadline = time.monotonic() + timeout_s
    while (alive := [each for each in identities if each.is_alive()]) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    return alive
