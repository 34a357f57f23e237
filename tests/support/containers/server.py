"""What Postgres and Kafka have in common as containers: an engine, a network, a port on loopback, and a life."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import ExitStack
from typing import ClassVar

from testcontainers.core.config import testcontainers_config
from testcontainers.core.container import DockerContainer
from testcontainers.core.network import Network

from devstack.processes.port import LOOPBACK, ReservedPort
from tests.support.engine.engine import Engine
from tests.support.engine.errors import EngineError
from tests.support.engine.owner import OWNER_LABEL, Owner
from tests.support.waiting import wait_until

_START_TIMEOUT_S = 300.0
_POLL_S = 0.1
_LAST_CHARACTERS = 3000


class ContainerServer(ABC):
    """One container of an image, reached on a loopback port that the operating system chose."""

    image: ClassVar[str]

    def __init__(self, engine: Engine) -> None:
        """Describe a server; nothing is started. Only engines of this machine can be used: ports are on its loopback."""
        # Its image cannot be had everywhere, and what a killed run leaves is removed by `remove_leftovers`.
        testcontainers_config.ryuk_disabled = True
        self._engine = engine
        self._reserved = ReservedPort()
        self.port = self._reserved.number
        self._network = Network(
            docker_client_kw={"environment": engine.environment},
            docker_network_kw={"labels": {OWNER_LABEL: str(Owner.this())}},
        )
        self._container: DockerContainer | None = None

    def start(self) -> None:
        """Start the container and return when the server answers. Raises EngineError with the end of its log when it does not."""
        # A default bridge is not on every engine.
        self._network.create()
        container = DockerContainer(
            self._engine.image(self.image), docker_client_kw={"environment": self._engine.environment}
        )
        container.env |= self.variables()
        container.with_command(list(self.arguments()))
        container.with_network(self._network)
        container.with_kwargs(labels={OWNER_LABEL: str(Owner.this())}, **self.options())
        # docker-py takes an address too, which testcontainers' own type does not know.
        container.ports = {str(self.container_port()): (LOOPBACK, self.port)}  # type: ignore[dict-item]
        self._container = container
        try:
            container.start()
            self._wait_until_it_answers(container)
        except BaseException:
            self.destroy()
            raise

    def destroy(self) -> None:
        """Remove the container, its data and its network, and give the port back."""
        with ExitStack() as whatever_fails:
            whatever_fails.callback(self._reserved.close)
            whatever_fails.callback(self._network.remove)
            if self._container is not None:
                self._container.stop()
                self._container = None

    @abstractmethod
    def variables(self) -> dict[str, str]:
        """The container's environment."""

    @abstractmethod
    def container_port(self) -> int:
        """The port on which the server listens inside."""

    @abstractmethod
    def answers(self) -> bool:
        """Whether a client gets an answer."""

    def arguments(self) -> Sequence[str]:
        """The container's command; none: the image's own."""
        return ()

    def options(self) -> dict[str, str]:
        """Further options of the container, as docker-py names them."""
        return {}

    def _wait_until_it_answers(self, container: DockerContainer) -> None:
        def log() -> str:
            container.reload()
            said = b"".join(container.get_logs()).decode(errors="replace")[-_LAST_CHARACTERS:]
            return f"the container of {self.image} is {container.status} and does not answer:\n{said}"

        def has_answered() -> bool:
            if self.answers():
                return True
            container.reload()
            if container.status != "running":
                raise EngineError(log())
            return False

        try:
            wait_until(has_answered, log, _START_TIMEOUT_S, poll_s=_POLL_S)
        except AssertionError as error:
            raise EngineError(str(error)) from error
