"""The node: `node.py STATE PROGRAMS CONTAINERD`, standard library only.

1. Makes control groups of its own below the caller's, and goes into them.
2. Becomes `unshare`, which starts this file again as process 1 of namespaces of its own: when that ends, all ends with
   it, with the pods, the bridge, iptables' rules and the mounts.
3. As process 1: mounts, network, then the programs. STATE is /run/node in there. `STATE/up` says that they are started.

No program of the node listens on an address of this machine, and none reaches out.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

GROUP = "spark-outbox-node"
ADDRESS = "198.18.254.1"
SERVICES = "10.96.0.0/16"
_PODS = "10.244.0.0/24"
_GROUPS = Path("/sys/fs/cgroup")
_CONTROLLERS = ("cpu", "cpuacct", "cpuset", "memory", "devices", "freezer", "blkio", "pids")
_NODE = Path("/run/node")
_PKI = _NODE / "pki"
_LOGS = _NODE / "logs"
# The kubelet sets these for the whole machine unless they have its values: it is shown files that have.
_KERNEL = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}
_NAMESPACES = ("--cgroup", "--pid", "--mount", "--net", "--uts", "--ipc")


def control_groups() -> list[Path]:
    """The node's own, one in each hierarchy, below those of this process."""
    found = []
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        hierarchy = controllers.removeprefix("name=") or "unified"
        if (_GROUPS / hierarchy).exists():
            found.append(_GROUPS / hierarchy / path.lstrip("/") / GROUP)
    return found


def main(state: Path, programs: Path, containerd: Path) -> None:
    for group in control_groups():
        group.mkdir(exist_ok=True)
        if (group / "cpuset.cpus").exists():
            for name in ("cpuset.cpus", "cpuset.mems"):
                (group / name).write_text((group.parent / name).read_text())
            (group / "cgroup.clone_children").write_text("1")
        (group / "cgroup.procs").write_text(str(os.getpid()))
    itself = (sys.executable, "-I", "-S", __file__, "--first", *map(str, (state, programs, containerd)))
    options = (*_NAMESPACES, "--fork", "--kill-child", "--mount-proc", "--propagation", "private")
    os.execvp("unshare", ("unshare", *options, *itself))


def first(state: Path, programs: Path, containerd: Path) -> None:
    """Process 1."""
    _mount(state, containerd)
    _connect()
    _start(programs)
    (_NODE / "up").touch()
    # It reaps what is left to it, until it is killed.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        signal.pause()


def _mount(state: Path, containerd: Path) -> None:
    """Views of its own of /sys and the control groups; the folders that container runtimes are hard-wired to."""
    _call("umount", "-R", "/sys")
    _call("mount", "-t", "sysfs", "sysfs", "/sys")
    _call("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", str(_GROUPS))
    for each in _CONTROLLERS:
        (_GROUPS / each).mkdir()
        _call("mount", "-t", "cgroup", "-o", each, "cgroup", str(_GROUPS / each))
    (_GROUPS / "systemd").mkdir()
    _call("mount", "-t", "cgroup", "-o", "none,name=systemd", "cgroup", str(_GROUPS / "systemd"))
    _call("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run")
    for each in ("netns", "lock"):
        Path("/run", each).mkdir()
    _bind(state, _NODE)
    _bind(containerd, Path("/var/lib/containerd"))
    for path in ("lib/kubelet", "lib/cni", "log/pods", "log/containers"):
        folder = _NODE / "var" / path
        folder.mkdir(parents=True)
        _bind(folder, Path("/var") / path)
    # Where the test's Kafka keeps its data, which outlive its pods.
    data = _NODE / "kafka"
    data.mkdir()
    os.chown(data, 1000, 1000)
    kernel = _NODE / "kernel"
    kernel.mkdir()
    for name, value in _KERNEL.items():
        shown = kernel / name.replace("/", ".")
        shown.write_text(f"{value}\n")
        _call("mount", "--bind", str(shown), f"/proc/sys/{name}")
    _call("mount", "--make-rshared", "/")


def _connect() -> None:
    """Loopback, and an address for the node, which the kubelet wants to be another one."""
    _call("hostname", "node")
    _call("ip", "link", "set", "lo", "up")
    _call("ip", "link", "add", "node0", "type", "veth", "peer", "name", "node1")
    _call("ip", "address", "add", f"{ADDRESS}/24", "dev", "node0")
    for end in ("node0", "node1"):
        _call("ip", "link", "set", end, "up")
    # Else the node itself has no route to a Service, and its packets are dropped before they are rewritten.
    _call("ip", "route", "add", SERVICES, "dev", "node0")
    for name in ("ipv4/ip_forward", "bridge/bridge-nf-call-iptables"):
        Path("/proc/sys/net", name).write_text("1")


def _start(programs: Path) -> None:
    def run(name: str, *arguments: str) -> None:
        program = programs / name if (programs / name).exists() else Path(name)
        with (_LOGS / f"{name}.log").open("a") as log:
            subprocess.Popen([str(program), *arguments], stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def client(name: str) -> list[str]:
        config = _PKI / f"{name}.kubeconfig"
        return [
            f"--{option}={config}"
            for option in ("kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig")
        ]

    ca, tokens = _PKI / "ca.pem", _PKI / "tokens"
    run("containerd", "--config", str(_NODE / "settings/containerd.toml"))
    run(
        *("etcd", f"--data-dir={_NODE / 'etcd'}", "--unsafe-no-fsync", "--log-level=warn"),
        *("--listen-client-urls=http://127.0.0.1:2379", "--advertise-client-urls=http://127.0.0.1:2379"),
        *("--listen-peer-urls=http://127.0.0.1:2380", "--initial-advertise-peer-urls=http://127.0.0.1:2380"),
        "--initial-cluster=default=http://127.0.0.1:2380",
    )
    run(
        *("kube-apiserver", "--etcd-servers=http://127.0.0.1:2379", f"--service-cluster-ip-range={SERVICES}"),
        *(f"--bind-address={ADDRESS}", f"--advertise-address={ADDRESS}", "--secure-port=6443"),
        *("--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction"),
        *(f"--client-ca-file={ca}", "--allow-privileged=true", "--profiling=false"),
        *(f"--requestheader-client-ca-file={ca}", "--requestheader-allowed-names=front-proxy"),
        *(f"--tls-cert-file={_PKI / 'apiserver.crt'}", f"--tls-private-key-file={_PKI / 'apiserver.key'}"),
        "--service-account-issuer=https://kubernetes.default.svc",
        *(f"--service-account-key-file={tokens}.crt", f"--service-account-signing-key-file={tokens}.key"),
        f"--kubelet-client-certificate={_PKI / 'kubelet-client.crt'}",
        f"--kubelet-client-key={_PKI / 'kubelet-client.key'}",
        "--kubelet-preferred-address-types=InternalIP",
    )
    admin = str(_PKI / "admin.kubeconfig")
    kubectl = (str(programs / "kubectl"), "--kubeconfig", admin)
    _wait_for(*kubectl, "get", "--raw", "/readyz")
    run(
        *("kube-controller-manager", *client("kube-controller-manager"), "--bind-address=127.0.0.1"),
        *("--leader-elect=false", "--profiling=false", "--use-service-account-credentials=true"),
        *(f"--service-account-private-key-file={tokens}.key", f"--root-ca-file={ca}"),
        *(f"--cluster-cidr={_PODS}", "--allocate-node-cidrs=false"),
        f"--flex-volume-plugin-dir={_NODE / 'volume-plugins'}",
    )
    run(
        *("kube-scheduler", *client("kube-scheduler"), "--bind-address=127.0.0.1"),
        *("--leader-elect=false", "--profiling=false"),
    )
    _wait_for("ctr", "version")
    run(
        *(
            "kubelet",
            f"--config={_NODE / 'settings/kubelet.yaml'}",
            f"--kubeconfig={_PKI / 'kubelet.kubeconfig'}",
        ),
        *("--hostname-override=node", f"--node-ip={ADDRESS}"),
    )
    run("kube-proxy", f"--config={_NODE / 'settings/kube-proxy.yaml'}")
    _wait_for(*kubectl, "get", "node", "node")
    run("network-policies", admin, "node")


def _wait_for(*command: str) -> None:
    """Until the command succeeds. Who waits for `up` has the patience, and kills us when it ends."""
    while subprocess.run(command, capture_output=True, check=False).returncode != 0:
        time.sleep(0.2)


def _bind(source: Path, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    _call("mount", "--bind", str(source), str(target))


def _call(*command: str) -> None:
    subprocess.run(command, check=True)


if __name__ == "__main__":
    role = main if sys.argv[1] != "--first" else first
    role(*(Path(argument) for argument in sys.argv[-3:]))
