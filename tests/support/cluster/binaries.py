"""The node's programs, compiled by Go once and kept by the hash of what they are made from."""

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from spark_job.spark.jars import cache_dir
from tests.support.cluster.errors import ClusterError
from tests.support.paths import ROOT

_SOURCES = Path(__file__).parent / "programs"
NAMES = (
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubelet",
    "kube-proxy",
    "network-policies",
    "kubectl",
)
"""`node` is each of them: the one by whose name it is called."""
_HELM = re.compile(r"helm\.sh/helm\S+")
"""The module in the Makefile, with its version."""
_LAST_CHARACTERS = 3000


def cluster_cache() -> Path:
    """Where programs and images of the node are kept: kubernetes/ beside the jars of the user's cache."""
    return cache_dir().parent / "kubernetes"


def programs(cache: Path, say: Callable[[str], None]) -> Path:
    """A folder with NAMES, `helm`, `dns/dns` and `pause/pause`; compiled where `cache` has none yet, after a line to `say`.

    Raises ClusterError with the compiler's last words.
    """
    made = cache / f"programs-{_sources_hash()}"
    if made.exists():
        return made
    if shutil.which("go") is None:
        raise ClusterError("the node's programs are compiled by Go, 1.24 or newer: https://go.dev/dl")
    say("Compiling Kubernetes, etcd, CoreDNS, kube-router and Helm, once; it takes up to half an hour.")
    with tempfile.TemporaryDirectory(prefix=".programs-", dir=cache) as scratch:
        folder = Path(scratch) / "made"
        for each in ("dns", "pause"):
            (folder / each).mkdir(parents=True)
        version = _go("list", "-m", "-f", "{{.Version}}", "k8s.io/kubernetes")
        said = f"-s -w -X k8s.io/component-base/version.gitVersion={version}"
        _go("build", "-trimpath", "-ldflags", said, "-o", str(folder), "./node")
        _go("build", "-trimpath", "-ldflags", said, "-o", str(folder / "dns"), "./dns")
        _go("install", "-trimpath", _helm(), into=folder)
        # Only there once something of the module was compiled.
        source = _go("list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes")
        pause = ("-Os", "-static", "-DVERSION=3.10", "-o", str(folder / "pause/pause"))
        _call("gcc", *pause, f"{source}/build/pause/linux/pause.c")
        for name in NAMES:
            (folder / name).symlink_to("node")
        folder.rename(made)
    return made


def _sources_hash() -> str:
    digest = hashlib.sha256(_helm().encode())
    for path in sorted(_SOURCES.rglob("*")):
        if path.is_file():
            digest.update(f"{path.relative_to(_SOURCES)}\n".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _helm() -> str:
    found = _HELM.search((ROOT / "Makefile").read_text("utf-8"))
    assert found is not None
    return found[0]


def _go(*arguments: str, into: Path | None = None) -> str:
    return _call("go", *arguments, **({} if into is None else {"GOBIN": str(into)}))


def _call(*command: str, **variables: str) -> str:
    """Run a command among the sources and return what it printed."""
    environment = os.environ | {"CGO_ENABLED": "0"} | variables
    done = subprocess.run(command, cwd=_SOURCES, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ClusterError(f"'{' '.join(command)}' failed:\n{done.stderr[-_LAST_CHARACTERS:].strip()}")
    return done.stdout.strip()
