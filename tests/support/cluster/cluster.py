"""A node that runs, and what a test does with it: kubectl, kills, pauses."""

import ctypes
import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import IO, Any

import psutil

from devstack.processes.errors import DevstackError
from devstack.processes.process import ServerProcess, launch
from tests.support.cluster import machine, node
from tests.support.cluster.binaries import programs
from tests.support.cluster.errors import ClusterError
from tests.support.secured.authority import Authority
from tests.support.waiting import LONG_DEADLINE_S, wait_until

_HERE = Path(__file__).parent
_CLONE_NEWNET = 0x40000000
_START_TIMEOUT_S = 300.0
_COMMAND_TIMEOUT_S = 600.0
_LAST_CHARACTERS = 3000
# User of a kubeconfig -> its subject.
_USERS = {
    "admin": "/O=system:masters/CN=admin",
    "kubelet": "/O=system:nodes/CN=system:node:node",
    "kube-controller-manager": "/CN=system:kube-controller-manager",
    "kube-scheduler": "/CN=system:kube-scheduler",
    "kube-proxy": "/CN=system:kube-proxy",
}


class Cluster:
    """One node that is up. Commands run in its network, whatever the caller's is."""

    def __init__(self, state: Path, folder: Path, server: ServerProcess) -> None:
        """`folder`: the programs."""
        self._state = state
        self._folder = folder
        (first,) = psutil.Process(server.identity.pid).children()
        self._first = first

    # Commands

    def kubectl(self, *arguments: str, stdin: str | None = None, check: bool = True) -> str:
        """Run `kubectl ARGUMENTS` as an administrator; return what it printed. Raises ClusterError when it fails, unless not `check`."""
        return self.asked(*arguments, stdin=stdin, check=check).stdout

    def asked(
        self, *arguments: str, stdin: str | None = None, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """The same with exit code and both outputs."""
        return self._administer("kubectl", *arguments, stdin=stdin, check=check)

    def helm(self, *arguments: str) -> str:
        """Run `helm ARGUMENTS` as an administrator; return what it printed. Raises ClusterError when it fails."""
        return self._administer("helm", *arguments).stdout

    def _administer(
        self, program: str, *arguments: str, stdin: str | None = None, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        config = str(self._state / "pki/admin.kubeconfig")
        done = subprocess.run(
            self._inside("--net", str(self._folder / program), "--kubeconfig", config, *arguments),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=_COMMAND_TIMEOUT_S,
            check=False,
        )
        if check and done.returncode != 0:
            said = (done.stdout + done.stderr)[-_LAST_CHARACTERS:]
            raise ClusterError(f"'{program} {' '.join(arguments)}' failed:\n{said}")
        return done

    def read(self, *arguments: str) -> Any:
        """What `kubectl get ARGUMENTS` knows, parsed."""
        return json.loads(self.kubectl("get", *arguments, "--output", "json"))

    def ctr(self, *arguments: str, stdin: IO[bytes] | None = None) -> str:
        """Run `ctr ARGUMENTS` on the containers that the kubelet has made."""
        command = self._inside("--net", "--mount", "ctr", "--namespace", "k8s.io", *arguments)
        done = subprocess.run(
            command, stdin=stdin, capture_output=True, timeout=_COMMAND_TIMEOUT_S * 6, check=False
        )
        if done.returncode != 0:
            said = done.stderr.decode(errors="replace")[-_LAST_CHARACTERS:]
            raise ClusterError(f"'ctr {' '.join(arguments)}' failed:\n{said}")
        return done.stdout.decode()

    def _inside(self, *arguments: str) -> list[str]:
        return ["nsenter", "--target", str(self._first.pid), *arguments]

    @contextmanager
    def network(self) -> Iterator[None]:
        """Within the block this thread, and what it starts, is in the node's network: it reaches Services by their addresses."""
        with open("/proc/thread-self/ns/net") as before, open(f"/proc/{self._first.pid}/ns/net") as inside:
            _enter(inside)
            try:
                yield
            finally:
                _enter(before)

    # Faults

    def kill(self, pod: Mapping[str, Any]) -> None:
        """SIGKILL to the first process of the pod's container."""
        self.ctr("tasks", "kill", "--signal", "SIGKILL", _container(pod))

    @contextmanager
    def paused(self, pod: Mapping[str, Any]) -> Iterator[None]:
        """Within the block no process of the pod's container runs (the freezer of the control groups)."""
        task = _container(pod)
        self.ctr("tasks", "pause", task)
        try:
            yield
        finally:
            self.ctr("tasks", "resume", task)

    @contextmanager
    def frozen(self, program: str) -> Iterator[None]:
        """Within the block a program of the node does not run (SIGSTOP)."""
        (process,) = (each for each in self._first.children() if each.name() == program)
        process.suspend()
        try:
            yield
        finally:
            process.resume()


def _container(pod: Mapping[str, Any]) -> str:
    """The identity of the pod's only container."""
    (status,) = pod["status"]["containerStatuses"]
    return str(status["containerID"]).removeprefix("containerd://")


@contextmanager
def running(cache: Path, say: Callable[[str], None]) -> Iterator[Cluster]:
    """A node within the block. Its programs and images stay in `cache`. One at a time: a second one waits.

    `say` gets a line for the person before something that takes long. Raises ClusterError with the reason and the way out.
    """
    machine.prepare(say)
    cache.mkdir(parents=True, exist_ok=True)
    containerd = cache / "containerd"
    containerd.mkdir(exist_ok=True)
    lock = os.open(containerd, os.O_RDONLY)
    # It goes with us, also after kill -9.
    fcntl.flock(lock, fcntl.LOCK_EX)
    state = Path(tempfile.mkdtemp(prefix="spark-outbox-node-"))
    try:
        folder = programs(cache, say)
        with _node(state, folder, containerd) as cluster:
            yield cluster
    finally:
        shutil.rmtree(state, ignore_errors=True)
        os.close(lock)


@contextmanager
def _node(state: Path, folder: Path, containerd: Path) -> Iterator[Cluster]:
    """The node's process, from its certificates to the removal of its control groups."""
    _write_certificates(state / "pki")
    shutil.copytree(_HERE / "settings", state / "settings")
    (state / "logs").mkdir()
    log = state / "logs/node.log"
    # Those of a killed run.
    _remove_groups()
    try:
        command = (sys.executable, "-I", "-S", node.__file__, *map(str, (state, folder, containerd)))
        server = launch("the node", command, log=log)
        try:
            server.wait_until((state / "up").exists, timeout_s=_START_TIMEOUT_S)
            cluster = Cluster(state, folder, server)
            cluster.kubectl("wait", "--for=condition=Ready", "node/node", f"--timeout={_START_TIMEOUT_S:g}s")
            wait_until(
                lambda: cluster.kubectl("get", "serviceaccount", "default", "--ignore-not-found"),
                "the default service account",
                LONG_DEADLINE_S,
            )
            cluster.kubectl("apply", "--filename", str(_HERE / "manifests/dns.yaml"))
            yield cluster
        finally:
            server.kill()
            _remove_groups()
    except DevstackError as error:
        raise ClusterError(f"the node did not start: {error}\n{_last_words(state / 'logs')}") from error


def _write_certificates(folder: Path) -> None:
    """The authority, the servers' certificates, and a kubeconfig for each client."""
    authority = Authority(folder)
    address = node.ADDRESS
    names = f"DNS:kubernetes.default.svc,IP:10.96.0.1,IP:{address}"
    authority.issue("apiserver", "/CN=kube-apiserver", names)
    authority.issue("kubelet-client", "/O=system:masters/CN=apiserver-kubelet-client")
    authority.issue("tokens")
    for name, subject in _USERS.items():
        authority.issue(name, subject)
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {
                    "name": "node",
                    "cluster": {"server": f"https://{address}:6443", "certificate-authority": "ca.pem"},
                }
            ],
            "users": [
                {"name": name, "user": {"client-certificate": f"{name}.crt", "client-key": f"{name}.key"}}
            ],
            "contexts": [{"name": "node", "context": {"cluster": "node", "user": name}}],
            "current-context": "node",
        }
        (folder / f"{name}.kubeconfig").write_text(json.dumps(config), "utf-8")


def _remove_groups() -> None:
    """Wait until the last process of a node has ended: after SIGKILL to its run some still end while the next run starts."""
    for group in node.control_groups():
        wait_until(partial(_is_removed, group), f"the end of the processes in {group}", LONG_DEADLINE_S)


def _is_removed(group: Path) -> bool:
    """Whether nothing is left of the group; a folder that has processes stays."""
    folders = [*group.rglob("*/"), group] if group.exists() else []
    # The deepest first.
    for folder in sorted(folders, key=lambda each: len(each.parts), reverse=True):
        with suppress(OSError):
            folder.rmdir()
    return not group.exists()


def _last_words(logs: Path) -> str:
    """The end of each program's log."""
    return "\n".join(
        f"{path.name}: {path.read_text(errors='replace')[-_LAST_CHARACTERS // 3 :]}"
        for path in sorted(logs.glob("*.log"))
    )


def _enter(namespace: IO[str]) -> None:
    # os.setns came with Python 3.12.
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(namespace.fileno(), _CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns")
