"""deploy/kubernetes on a node, beside a Postgres and a Kafka: what tests do to it, and whether everything came out exactly."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import psycopg

from devstack.topics import create_topics
from examples.clickstream.topics import INPUT, LOAD, OUTPUT
from examples.clickstream.transform import TOPICS
from tests.support.cluster.cluster import Cluster
from tests.support.containers.compose_expectation import is_dealt_with, of_inputs, together
from tests.support.containers.compose_project import progress
from tests.support.paths import ROOT
from tests.support.pipeline import verdict
from tests.support.pipeline.expectation import Expectation
from tests.support.pipeline.feed import Feeder, rounds
from tests.support.waiting import wait_until
from tests.support.watching import Watcher

BOOTSTRAP = "10.96.0.92:9094"
"""Kafka, as the node reaches it; see servers.yaml."""
_POSTGRES = "10.96.0.54:5432"
OVERLAY = ROOT / "tests/kubernetes/overlay"
WITH_EXECUTORS = ROOT / "tests/kubernetes/executors"
"""The same with executors in pods of their own."""
EXAMPLE = ROOT / "deploy/kubernetes/overlays/example"
SERVICES = ("spark-job", "publisher")
SERVERS = ("postgres", "kafka")
# Secret -> the login whose DSN it has.
_LOGINS = {"outbox-owner": "outbox_owner", "outbox-spark-job": "spark_job", "outbox-publisher": "publisher"}
_SERVERS_FILE = Path(__file__).parent / "manifests/servers.yaml"
_SESSIONS = 50
_SESSIONS_PER_SECOND = 5.0
_PATIENCE_S = 600.0
_LOG_LINES = 15

Pod = Mapping[str, Any]


class Pipeline:
    """The pipeline in the namespace `outbox`, its servers in `servers`. `kubectl` looks into the former."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.applied: CompletedProcess[str]
        """What kubectl said of the installation."""
        self.passwords = dict.fromkeys(
            ("postgres", *_LOGINS.values(), "auditor", "retention"), "of-the-first-day"
        )

    @property
    def dsn(self) -> str:
        """The superuser's."""
        return f"postgresql://postgres:{self.passwords['postgres']}@{_POSTGRES}/outbox"

    def kubectl(self, *arguments: str, stdin: str | None = None, check: bool = True) -> str:
        """See Cluster.kubectl."""
        return self.cluster.kubectl("--namespace", "outbox", *arguments, stdin=stdin, check=check)

    # Deployment, in the order of docs/kubernetes.md

    def start_servers(self) -> None:
        """Postgres with its logins, Kafka with its topics."""
        self.cluster.kubectl("apply", "--filename", str(_SERVERS_FILE))
        for name in SERVERS:
            self.cluster.kubectl(
                "--namespace", "servers", "rollout", "status", f"deployment/{name}", "--timeout=10m"
            )
        self.make_logins()
        create_topics(BOOTSTRAP, INPUT | OUTPUT)

    def make_logins(self) -> None:
        """Give each login its password, by the script of docker-compose.yml."""
        files = "umask 077; cd /run/outbox-secrets; while read -r login password; do printf %s $password > $login.password; done"
        lines = "".join(f"{login} {password}\n" for login, password in self.passwords.items())
        command = ("--namespace", "servers", "exec", "--stdin", "deployment/postgres", "--", "bash")
        self.cluster.kubectl(*command, "-c", files, stdin=lines)
        self.cluster.kubectl(*command, stdin=(ROOT / "deploy/postgres/logins.sh").read_text("utf-8"))

    def write_secrets(self) -> None:
        """Make or change the Secrets with the passwords of now."""
        for secret, login in _LOGINS.items():
            dsn = f"postgresql://{login}:{self.passwords[login]}@postgres.servers.svc/outbox"
            made = self.kubectl(
                *(
                    "create",
                    "secret",
                    "generic",
                    secret,
                    f"--from-literal=dsn={dsn}",
                    "--from-literal=kafka.toml=",
                ),
                *("--dry-run=client", "--output=yaml"),
            )
            self.kubectl("apply", "--filename=-", stdin=made)

    def install(self, overlay: Path = OVERLAY) -> None:
        """Apply what kustomize builds of the overlay; return when the schema is there and the pods are ready."""
        self.applied = self.cluster.asked(
            "apply", "--server-side", "--validate=strict", "--kustomize", str(overlay)
        )
        self.kubectl("wait", "--for=condition=complete", "--timeout=10m", "job/outbox-migrate")
        self.wait_for_rollouts()

    def wait_for_rollouts(self) -> None:
        """Return when the newest pods of both services are ready."""
        for name in SERVICES:
            self.kubectl("rollout", "status", f"deployment/{name}", "--timeout=10m")

    # Pods

    def pods(self, name: str) -> list[Pod]:
        """Those of a service or a server that are not about to end, by name."""
        where = (
            ("--namespace=servers", f"--selector=app={name}")
            if name in SERVERS
            else ("--namespace=outbox", f"--selector=app.kubernetes.io/name={name}")
        )
        found = self.cluster.read("pods", *where)["items"]
        return sorted(
            (pod for pod in found if "deletionTimestamp" not in pod["metadata"]), key=lambda pod: name_of(pod)
        )

    def again(self, pod: Pod) -> Pod:
        """The same pod as it is now."""
        found: Pod = self.cluster.read("pod", name_of(pod), f"--namespace={pod['metadata']['namespace']}")
        return found

    def kill(self, pod: Pod) -> None:
        """SIGKILL to its container; return when the kubelet has started it again and it is ready."""
        before = restarts(pod)
        self.cluster.kill(pod)
        self.wait_until(
            lambda: restarts(now := self.again(pod)) > before and is_ready(now),
            f"{name_of(pod)} is ready again after SIGKILL",
        )

    def all_ready(self) -> bool:
        """Whether every pod of both services is."""
        return all(is_ready(pod) for name in SERVICES for pod in self.pods(name))

    def restarts(self) -> dict[str, int]:
        """{pod of a service: how often its container was started again}"""
        return {name_of(pod): restarts(pod) for name in SERVICES for pod in self.pods(name)}

    # What comes of it

    @contextmanager
    def fed(self, seed: int) -> Iterator[Feeder]:
        """Within the block sessions come in; it begins when the first of them have been delivered."""
        before = progress(self.dsn)
        with Feeder(BOOTSTRAP, LOAD, rounds(seed, _SESSIONS, _SESSIONS_PER_SECOND)) as feeder:
            self.wait_for_progress(before, "the first batches and deliveries")
            yield feeder
            assert feeder.is_writing()

    def progress(self) -> tuple[int, int]:
        """(newest batch, delivered events)"""
        return progress(self.dsn)

    def wait_for_progress(self, before: tuple[int, int], what: str) -> None:
        """New batches and new deliveries: the pipeline continues, it is not only up."""

        def it_continues() -> bool:
            batch, events = progress(self.dsn)
            return batch > before[0] + 1 and events > before[1]

        self.wait_until(it_continues, what)

    def assert_exact(self) -> Expectation:
        """Wait until everything of the input is delivered; fail unless outbox and topics have exactly what the model says."""
        parts = of_inputs(BOOTSTRAP)
        self.wait_until(lambda: self.progress()[0] > 0, "the first batch")
        self.wait_until(lambda: is_dealt_with(self.dsn, parts), "the delivery of everything")
        whole = together(parts)
        with Watcher(BOOTSTRAP, *TOPICS) as watcher:
            watcher.wait_until_all_read()
        verdict.assert_delivered(whole, watcher.seen)
        verdict.assert_outbox(self.dsn, whole)
        verdict.assert_ledger_agrees(self.dsn)
        verdict.assert_deliveries_chain(self.dsn)
        return whole

    def wait_until(self, condition: Callable[[], object], what: str) -> None:
        """Return once it holds. While Postgres is away it does not."""

        def holds() -> bool:
            try:
                return bool(condition())
            except psycopg.OperationalError:
                return False

        wait_until(holds, lambda: f"{what}\n{self.shown()}", _PATIENCE_S, poll_s=1)

    def shown(self) -> str:
        """Pods, events and the end of every log, for the messages of failed tests."""
        said = [self.cluster.kubectl("get", "pods", "--all-namespaces", "--output=wide", check=False)]
        said.append(self.kubectl("get", "events", "--sort-by=.lastTimestamp", check=False)[-3_000:])
        for name in SERVICES:
            selector = f"--selector=app.kubernetes.io/name={name}"
            said.append(self.kubectl("logs", selector, f"--tail={_LOG_LINES}", "--prefix", check=False))
        return "\n".join(said)

    def audit(self) -> Mapping[str, Any]:
        """`publisher audit --kafka` in a pod of the publisher."""
        command = ("exec", "deployment/publisher", "--", "publisher", "audit", "--kafka", "--json")
        found: Mapping[str, Any] = json.loads(self.kubectl(*command, check=False))
        return found


def name_of(pod: Pod) -> str:
    """The pod's."""
    return str(pod["metadata"]["name"])


def restarts(pod: Pod) -> int:
    """How often its containers were started again."""
    return sum(each["restartCount"] for each in _statuses(pod))


def is_ready(pod: Pod) -> bool:
    """Whether all its containers are."""
    statuses = _statuses(pod)
    return bool(statuses) and all(each["ready"] for each in statuses)


def _statuses(pod: Pod) -> Sequence[Mapping[str, Any]]:
    found: Sequence[Mapping[str, Any]] = pod["status"].get("containerStatuses", [])
    return found
