"""Sessions at a steady rate, and what the job costs when no more come."""

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from uuid import uuid4

from benchmarks.pipeline.checkout import Checkout
from benchmarks.pipeline.latency import SentEnd
from benchmarks.pipeline.services import Services, running
from benchmarks.pipeline.traffic import BROKER_STAMPS, Feeder, Watcher, wait_for
from benchmarks.support.report import Measured
from benchmarks.support.servers import Servers
from benchmarks.transforms import TOPIC
from devstack.topics import create_topics

IDLE = {
    "cpu_percent": "CPU of the idle job, % of a core",
    "jvm_percent": "of it the JVM",
    "batches": "ledger rows written meanwhile",
}
_FIRST_S = 600.0
_LAST_S = 60.0


@dataclass(frozen=True)
class Flow:
    """Services under a steady flow of sessions."""

    services: Services
    feeder: Feeder
    watcher: Watcher

    def stop(self) -> dict[bytes, SentEnd]:
        """Send no more, and wait for all outputs, for a minute at the most; return what was sent."""
        sent = self.feeder.stop()
        deadline = time.monotonic() + _LAST_S
        while not sent.keys() <= self.watcher.received.keys() and time.monotonic() < deadline:
            self.services.check_alive()
            time.sleep(0.1)
        return sent

    def wait(self, seconds: float) -> None:
        """Let it flow for a while."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.services.check_alive()
            time.sleep(min(1.0, max(0.0, until - time.monotonic())))


@contextmanager
def flowing(
    servers: Servers,
    checkout: Checkout,
    settings: Mapping[str, str],
    *,
    rate: float,
    partitions: int,
    warm_up_s: float,
) -> Iterator[Flow]:
    """Start everything on a topic of its own; yield once the first output was received and `warm_up_s` are over."""
    name = uuid4().hex[:8]
    topic = f"bench.in.{name}"
    create_topics(
        servers.bootstrap_servers, {topic: (partitions, BROKER_STAMPS), TOPIC: (OUTPUT_PARTITIONS, {})}
    )
    with ExitStack() as cleanup:
        watcher = cleanup.enter_context(Watcher(servers.bootstrap_servers, OUTPUT_PARTITIONS))
        services = cleanup.enter_context(running(servers, checkout, topic, settings))
        feeder = cleanup.enter_context(Feeder(servers.bootstrap_servers, topic, rate, f"{name}-"))
        flow = Flow(services, feeder, watcher)
        wait_for(lambda: bool(watcher.received), "the first output", _FIRST_S, services.check_alive)
        flow.wait(warm_up_s)
        yield flow


OUTPUT_PARTITIONS = 4


def measure_idle(flow: Flow, seconds: float) -> Measured:
    """Stop the flow, wait until all is delivered, and measure what the job does then."""
    services = flow.services
    flow.stop()
    flow.wait(2)  # open sessions at the end of the input stay open
    begin, before = time.time(), services.cpu()
    flow.wait(seconds)
    end, used = time.time(), services.cpu() - before
    return {
        "cpu_percent": 100 * used.total / (end - begin),
        "jvm_percent": 100 * used.jvm / (end - begin),
        "batches": len(services.commits(begin, end)),
    }
