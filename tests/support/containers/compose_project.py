"""The shipped docker-compose.yml, really up: a project of its own, its containers, and kills from outside."""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg

from devstack.processes.port import LOOPBACK
from tests.support.engine.engine import Engine
from tests.support.engine.owner import Owner
from tests.support.engine.stand_ins import KAFKA, POSTGRES
from tests.support.paths import ROOT
from tests.support.queries import query
from tests.support.waiting import wait_until

LONG_RUNNING = ("postgres", "kafka", "spark-job", "publisher")
OVERRIDE = "tests/support/containers/override.yml"
SECRETS = "/run/outbox-secrets"
_LABEL = "com.docker.compose"
_PATIENCE_S = 300.0
_LOG_LINES = "40"


@dataclass(frozen=True)
class Container:
    """One container as the engine describes it at one moment."""

    id: str
    service: str
    number: int
    described: Mapping[str, Any]

    @property
    def pid(self) -> int:
        """Of its first process, as the engine sees it (which may live in a PID namespace of its own); 0 while it does not run."""
        return int(self.described["State"]["Pid"])

    @property
    def healthy(self) -> bool:
        """Whether it runs and its health check says so."""
        state = self.described["State"]
        return (state["Status"], state.get("Health", {}).get("Status")) == ("running", "healthy")

    @property
    def restarts(self) -> int:
        """How often the restart policy has started it again."""
        return int(self.described["RestartCount"])

    @property
    def exit_code(self) -> int | None:
        """Of the end; None while it runs or is to be started again."""
        state = self.described["State"]
        return int(state["ExitCode"]) if state["Status"] == "exited" else None


class Stack:
    """A Compose project. Build it, bring it `up`; the caller takes it down with `destroy`."""

    def __init__(
        self,
        engine: Engine,
        project: str,
        kafka_port: int,
        postgres_port: int,
        python: str,
        files: Sequence[str] = (),
    ) -> None:
        """`python`: the image to build on. The images have the project's name as their tag. `files`: beside the shipped one."""
        self._engine = engine
        self._files = (OVERRIDE, *files)
        self._project = project
        self._ports = (kafka_port, postgres_port)
        self._environment = {
            "KAFKA_PORT": str(kafka_port),
            "POSTGRES_PORT": str(postgres_port),
            "OUTBOX_TAG": project,
            "TEST_PYTHON_IMAGE": python,
            "TEST_POSTGRES_IMAGE": engine.image(POSTGRES),
            "TEST_KAFKA_IMAGE": engine.image(KAFKA),
            "TEST_OWNER": str(Owner.this()),
        }
        self.seconds: dict[str, float] = {}
        """What took how long, in order, for the report."""

    # Compose

    def compose(self, *arguments: str, check: bool = True, files: Sequence[str] | None = None) -> str:
        """Run `docker compose <arguments>` with the shipped file and `files` (None: the project's) after it; return what it printed."""
        given = self._files if files is None else files
        named = [option for file in ("docker-compose.yml", *given) for option in ("-f", str(ROOT / file))]
        return self._engine.run(
            *("compose", "-p", self._project, "--project-directory", str(ROOT), *named, *arguments),
            cwd=ROOT,
            environment=self._environment,
            timeout_s=1_500,
            check=check,
        ).stdout

    def config(self, *files: str) -> dict[str, Any]:
        """What Compose makes of the shipped file with `files` after it, every profile included."""
        answer = self.compose("--profile", "*", "config", "--format", "json", files=files)
        found: dict[str, Any] = json.loads(answer)
        return found

    def image(self, name: str) -> str:
        """The full name of `publisher` or `spark-job` as built here."""
        return f"spark-outbox/{name}:{self._project}"

    def run_image(self, name: str, *command: str) -> str:
        """Run a program in a container of that image alone, without any network; return what it printed."""
        entry, *arguments = command
        options = ("--rm", "--network", "none", "--read-only", "--entrypoint", entry)
        return self._engine.run("run", *options, self.image(name), *arguments, timeout_s=300).stdout

    def execute(self, service: str, *command: str) -> str:
        """Run a command in the service's first container."""
        return self.compose("exec", "-T", service, *command)

    def log(self, service: str) -> str:
        """All that the service's containers printed, in all their lives."""
        printed = [self._engine.run("logs", container.id) for container in self.containers(service)]
        return "".join(each.stdout + each.stderr for each in printed)

    def logs(self) -> str:
        """The end of every container's log, for the messages of failed tests."""
        return self.compose("ps", "--all", check=False) + self.compose(
            "logs", "--no-color", "--tail", _LOG_LINES, check=False
        )

    @contextmanager
    def timed(self, what: str) -> Iterator[None]:
        """Note how long the block takes."""
        began = time.monotonic()
        yield
        self.seconds[what] = round(time.monotonic() - began, 1)
        print(f"{what}: {self.seconds[what]} s")

    def destroy(self) -> None:
        """Remove containers, network, volumes and the two images. Layers stay: the next build is quicker by them."""
        self.compose("--profile", "*", "down", "--volumes", "--timeout", "0", check=False)
        for name in ("publisher", "spark-job"):
            self._engine.run("image", "rm", "--no-prune", self.image(name), check=False)

    # Containers

    def containers(self, *services: str) -> list[Container]:
        """The services' containers as they are now, by service and number. Those of `compose run` are not theirs."""
        labels = (f"{_LABEL}.project={self._project}", f"{_LABEL}.oneoff=False")
        filters = [option for label in labels for option in ("--filter", f"label={label}")]
        ids = self._engine.run("ps", "--all", "--quiet", *filters).stdout.split()
        found = [each for each in self._described(*ids) if each.service in services]
        return sorted(found, key=lambda each: (each.service, each.number))

    def container(self, service: str) -> Container:
        """The only one of the service."""
        (found,) = self.containers(service)
        return found

    def kill(self, victim: Container) -> None:
        """SIGKILL to all its processes, as they die with the first one. Return when it is up and healthy again by its restart policy."""
        with self.timed(f"{victim.service} killed, until it is healthy again"):
            kill_first_process(self._engine, victim)

            def back() -> bool:
                (now,) = self._described(victim.id)
                return now.restarts > victim.restarts and now.pid != victim.pid and now.healthy

            self.wait_until(back, f"{victim.service} is healthy again")

    def wait_until_healthy(self) -> None:
        """Wait for every long-running container."""

        def healthy() -> bool:
            return all(each.healthy for each in self.containers(*LONG_RUNNING))

        self.wait_until(healthy, "every container is healthy")

    def wait_until(self, condition: Callable[[], object], what: str, *, poll_s: float = 0.5) -> None:
        """Return once it holds. While Postgres is away it does not."""

        def holds() -> bool:
            try:
                return bool(condition())
            except psycopg.OperationalError:
                return False

        wait_until(holds, lambda: f"{what}\n{self.logs()}", timeout_s=_PATIENCE_S, poll_s=poll_s)

    def _described(self, *ids: str) -> list[Container]:
        answer = json.loads(self._engine.run("inspect", "--type", "container", *ids).stdout)
        return [_container(described) for described in answer]

    # Servers

    @property
    def bootstrap(self) -> str:
        """Kafka as the host reaches it."""
        return f"{LOOPBACK}:{self._ports[0]}"

    def secrets(self) -> dict[str, str]:
        """{login: password}, read where only Postgres can."""
        names = self.execute("postgres", "ls", SECRETS).split()
        return {
            name.removesuffix(".password"): self.execute("postgres", "cat", f"{SECRETS}/{name}").strip()
            for name in names
            if name.endswith(".password")
        }

    def dsn(self, login: str, password: str) -> str:
        """Postgres as the host reaches it."""
        return f"postgresql://{login}:{password}@{LOOPBACK}:{self._ports[1]}/outbox"


def kill_first_process(engine: Engine, victim: Container) -> None:
    """SIGKILL to the container's first process, which its restart policy takes for a crash.

    Not `docker kill`, which the engine takes for a wish that the container be gone: no policy starts it again. And not
    from here: the number is one of the engine's PID namespace. A container that shares that one sends the signal, after
    a look whether the number is still the victim's. Raises EngineError where it is not.
    """
    assert victim.pid > 0, f"{victim.service} does not run"
    script = 'grep -q "$1" "/proc/$2/cgroup" && kill -9 "$2"'
    options = (
        "--pid=host",
        "--cgroupns=host",
        "--network=none",
        "--user=0",
        "--cap-drop=ALL",
        "--cap-add=KILL",
    )
    image, arguments = victim.described["Image"], ("kill", victim.id, str(victim.pid))
    engine.run("run", "--rm", *options, "--entrypoint=sh", image, "-c", script, *arguments)


def _container(described: dict[str, Any]) -> Container:
    labels = described["Config"]["Labels"]
    number = int(labels[f"{_LABEL}.container-number"])
    return Container(described["Id"], labels[f"{_LABEL}.service"], number, described)


def progress(dsn: str) -> tuple[int, int]:
    """(newest batch, delivered events)"""
    ((batch, events),) = query(
        dsn,
        "SELECT (SELECT coalesce(max(batch_id), 0) FROM outbox.batch), (SELECT coalesce(sum(events), 0) FROM outbox.delivery)",
    )
    return int(batch), int(events)
