"""Publishers to run and kill: as processes, and in a thread of the test's own."""

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from pydantic import SecretStr

from publisher.monitoring.health import ProcessHealth
from publisher.relay import Relay
from service.settings import KafkaSettings, PostgresSettings, PublisherSettings, Settings
from tests.support.processes.environment import variables_of
from tests.support.processes.service import Service
from tests.support.waiting import DEADLINE_S

EIGHT_LANES_BYTES = 1 << 30
"""What a process with eight lanes and the default settings needs at the most: docs/lanes.md, and the manifest of Kubernetes."""


def settings_for(
    dsn: str, bootstrap: str, options: dict[str, Any] | None = None, **publisher: Any
) -> Settings:
    """Settings with short intervals. `options` are for librdkafka."""
    quick: dict[str, Any] = {"poll_ms": 200, "idle_progress_s": 0.2, "lease_s": 3.0}
    # Built without the environment, which would win and may name the servers of the run.
    return Settings.model_construct(
        postgres=PostgresSettings(dsn=SecretStr(dsn)),
        kafka=KafkaSettings(bootstrap_servers=bootstrap, options=options or {}),
        publisher=PublisherSettings(**(quick | publisher)),
    )


def publisher_service(settings: Settings, log: Path, variables: Mapping[str, str] | None = None) -> Service:
    """A `publisher run`, not started. `variables`: OUTBOX_ variables of further settings."""
    return Service("publisher", variables_of(settings) | dict(variables or {}), log)


class RelayThread:
    """A relay in a thread of this process. `error` is what `run` raised."""

    def __init__(self, settings: Settings, condition: ProcessHealth | None = None) -> None:
        self.stop = threading.Event()
        self.error: Exception | None = None
        self._relay = Relay(settings, self.stop, health=condition)
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        try:
            self._relay.run()
        except Exception as error:  # noqa: BLE001 - for the test to look at
            self.error = error

    def ended(self) -> bool:
        """Whether `run` returned or raised."""
        return not self._thread.is_alive()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        self._thread.join(DEADLINE_S)
        assert self.ended(), "the relay did not stop"
