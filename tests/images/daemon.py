"""A dockerd of our own on a private socket, which ends with us whatever happens to us.

It runs in PID and mount namespaces of its own, under devstack's guardian. Killing the first process of a PID
namespace kills all in it: containerd, the shims, which detach themselves from every parent, and the containers.
The mounts of the containers go with the mount namespace. So nothing stays behind, not even after `kill -9`.

No default bridge and no iptables rules: both are shared by all engines of a machine, and another one's would be
destroyed. Containers reach each other over networks that they name (as Compose and testcontainers make them), the host
reaches published ports through docker-proxy, and what has to reach out is built with `--network host`.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from devstack.errors import DevstackError
from devstack.process import ServerProcess, launch
from tests.images.errors import EngineError

_START_TIMEOUT_S = 60.0
_STOP_TIMEOUT_S = 20.0
_SLOTS = 8


@contextmanager
def running(cache: Path, answers: Callable[[str], bool]) -> Iterator[str]:
    """The address (as in DOCKER_HOST) of a dockerd that runs within the block; its images stay in `cache` for the next.

    `answers` tells whether the engine at an address serves. Runs at the same time get a folder each.
    Raises EngineError with the log's tail when it does not come up.
    """
    with _slot(cache) as data, _state(data) as state:
        # Else /etc/docker/daemon.json is read, which is about another engine.
        (state / "daemon.json").write_text("{}", encoding="utf-8")
        address = f"unix://{state / 'docker.sock'}"
        try:
            server = launch("dockerd", _command(state, data, address), log=state / "dockerd.log")
            try:
                server.wait_until(lambda: answers(address), timeout_s=_START_TIMEOUT_S)
                yield address
            finally:
                _end(server)
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


def _command(state: Path, data: Path, address: str) -> list[str]:
    return [
        *("unshare", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc"),
        "dockerd",
        f"--host={address}",
        f"--config-file={state / 'daemon.json'}",
        f"--data-root={data}",
        f"--exec-root={state / 'exec'}",
        f"--pidfile={state / 'dockerd.pid'}",
        "--bridge=none",
        "--iptables=false",
        "--ip-forward=false",
        "--log-level=warn",
    ]


@contextmanager
def _slot(cache: Path) -> Iterator[Path]:
    """A folder for images that no other run uses at this moment. The lock goes with our process, also after kill -9."""
    for number in range(_SLOTS):
        folder = cache / f"engine-{number}"
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            continue
        try:
            # What a killed run left: none of it is running, and nobody wants it. (Its networks: see `open_engine`.)
            for leftover in ("containers", "volumes"):
                shutil.rmtree(folder / leftover, ignore_errors=True)
            yield folder
        finally:
            os.close(handle)
        return
    raise EngineError(f"{_SLOTS} runs use an engine of their own under {cache} already; wait for one to end")
