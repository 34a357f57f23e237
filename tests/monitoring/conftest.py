"""Services that a real Prometheus watches, and the faults that make its alerts fire."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

from tests.support.monitoring.prometheus import Prometheus
from tests.support.monitoring.runbook import ask, follow
from tests.support.waiting import LONG_DEADLINE_S, wait_until

Alerting = Callable[..., AbstractContextManager[dict[str, str]]]


@pytest.fixture
def alerting() -> Alerting:
    """Make the check of one alert."""

    @contextmanager
    def check(
        prometheus: Prometheus,
        alert: str,
        *labels: str,
        variables: dict[str, str],
        addresses: dict[str, str],
        dsn: str | None = None,
    ) -> Iterator[dict[str, str]]:
        """Under a fault that has begun: the alert fires, its section's commands run; the block ends the fault, and the alert ends.

        Yields what the commands printed. `dsn`: where the section's SQL is asked, None where nobody answers.
        """
        wait_until(
            lambda: prometheus.fires(alert, *labels),
            lambda: f"{alert} {labels} to fire: {prometheus.firing()}",
            LONG_DEADLINE_S,
            poll_s=0.2,
        )
        printed = follow(alert, variables, addresses)
        if dsn is not None:
            ask(alert, dsn)
        yield printed
        wait_until(
            lambda: not prometheus.fires(alert),
            lambda: f"{alert} to end: {prometheus.firing()}",
            LONG_DEADLINE_S,
            poll_s=0.2,
        )

    return check
