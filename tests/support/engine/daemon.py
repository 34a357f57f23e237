"""A dockerd of our own on a private socket, which ends with us whatever happens to us.

It runs in PID and mount namespaces of its own, under devstack's guardian. Killing the first process of a PID
namespace kills all in it: containerd, the shims, which detach themselves from every parent, and the containers.
The mounts of the containers go with the mount namespace. After `kill -9` the bridges of its networks stay, with nothing
on them, and the files of its containers; the next engine of ours removes both.

No default bridge and no iptables rules: both are shared by all engines of a machine, and another one's would be
destroyed. Containers reach each other over networks that they name (as Compose and testcontainers make them), the host
reaches published ports through docker-proxy, and what has to reach out is built with `--network host`.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psutil

from devstack.processes.errors import DevstackError
from devstack.processes.process import ServerProcess, launch
from tests.support.engine import bridges
from tests.support.engine.errors import EngineError
from tests.support.engine.machine import IN_NAMESPACES

_START_TIMEOUT_S = 60.0
_STOP_TIMEOUT_S = 20.0
# Beside those in the cache, of which there may be several: the bridges that belong to a slot are the machine's.
_LOCKS = Path("/run/lock/spark-outbox-engines")


@contextmanager
def running(cache: Path, answers: Callable[[str], bool]) -> Iterator[str]:
    """The address (as in DOCKER_HOST) of a dockerd that runs within the block; its images stay in `cache` for the next.

    `answers` tells whether the engine at an address serves. Runs at the same time get a folder each.
    Raises EngineError with the log's tail when it does not come up.
    """
    with _slot(cache) as slot, _state(data := _data(cache / _name(slot))) as state:
        # Else /etc/docker/daemon.json is read, which is about another engine.
        (state / "daemon.json").write_text("{}", encoding="utf-8")
        address = f"unix://{state / 'docker.sock'}"
        try:
            command = _command(state, data, address, bridges.pool(slot))
            server = launch("dockerd", command, log=state / "dockerd.log")
            try:
                server.wait_until(lambda: answers(address), timeout_s=_START_TIMEOUT_S)
                yield address
            finally:
                _end(server)
                bridges.remove(slot)
        except DevstackError as error:
            raise EngineError(f"the engine did not start: {error}") from error


def _end(server: ServerProcess) -> None:
    # By its own hand if it can: the image store is kept for the next run. The server that we see is `unshare`.
    with suppress(psutil.NoSuchProcess):
        daemon = psutil.Process(server.identity.pid).children()
        for process in daemon:
            process.terminate()
        psutil.wait_procs(daemon, timeout=_STOP_TIMEOUT_S)
    server.kill()


@contextmanager
def _state(data: Path) -> Iterator[Path]:
    """A folder for the socket and the like. Not in `data`: a socket's path may have 107 bytes."""
    record = data / "state-folder"
    # The run that had this slot before was killed if it left one.
    if record.exists():
        shutil.rmtree(record.read_text(encoding="utf-8"), ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix="spark-outbox-engine-"))
    record.write_text(str(folder), encoding="utf-8")
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        record.unlink()


def _command(state: Path, data: Path, address: str, pool: str) -> list[str]:
    return [
        *IN_NAMESPACES,
        "dockerd",
        f"--host={address}",
        f"--config-file={state / 'daemon.json'}",
        _data_root(data),
        f"--exec-root={state / 'exec'}",
        f"--pidfile={state / 'dockerd.pid'}",
        "--bridge=none",
        f"--default-address-pool=base={pool},size=24",
        "--iptables=false",
        "--ip-forward=false",
        "--log-level=warn",
    ]


def _data_root(data: Path) -> str:
    return f"--data-root={data}"


@contextmanager
def _slot(cache: Path) -> Iterator[int]:
    """A number that no other run on this machine has, nor in this cache. The locks go with our process, also after kill -9.

    What killed runs left of bridges in this and the other free ones is removed.
    """
    mine: int | None = None
    with ExitStack() as until_the_end:
        for slot in range(bridges.SLOTS):
            with ExitStack() as locks:
                if not _locked(_LOCKS / _name(slot), locks):
                    continue
                bridges.remove(slot)
                if mine is None and _locked(cache / _name(slot), locks):
                    mine = slot
                    until_the_end.push(locks.pop_all())
        if mine is None:
            raise EngineError(f"{bridges.SLOTS} runs use an engine of their own already; wait for one to end")
        yield mine


def _locked(folder: Path, until: ExitStack) -> bool:
    """Lock a folder, made if it is not there. False where another process has the lock."""
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder, os.O_RDONLY)
    until.callback(os.close, handle)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _name(slot: int) -> str:
    return f"engine-{slot}"


def _data(folder: Path) -> Path:
    """The folder, once no engine uses it any more: the lock of a killed run is free at once, and its engine may still be ending."""
    engines = [
        process
        for process in psutil.process_iter(["cmdline"])
        if _data_root(folder) in (process.info["cmdline"] or ())
    ]
    _, alive = psutil.wait_procs(engines, timeout=_STOP_TIMEOUT_S)
    if alive:
        raise EngineError(f"the engine of a run that was killed does not end: process {alive[0].pid}")
    return folder
