"""Each alert about a job under load fires on its fault and ends after it: input that outruns it, late outputs, memory, a lost cache."""

import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from devstack.kafka import KafkaServer
from devstack.postgres import Postgres
from tests.support.monitoring.watched import watched_pipeline
from tests.support.pipeline.feed import starts_of
from tests.support.pipeline.options import Options
from tests.support.pipeline.pipeline import PARTITIONS

MAX_OPEN_BYTES = 1_500_000
NEAR = 0.9

pytestmark = [pytest.mark.monitoring, pytest.mark.timeout(1_500)]


@contextmanager
def lost_caches(cache: Path) -> Iterator[None]:
    """Remove what the cache of open sessions has, every second until the block ends: as a folder that does not survive."""
    stop = threading.Event()

    def run() -> None:
        while not stop.wait(1):
            for folder, _, names in os.walk(cache):
                for name in names:
                    if name.endswith(".sessions"):
                        Path(folder, name).unlink(missing_ok=True)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def test_the_alerts_about_a_job_under_load(
    own_postgres: Postgres, kafka: KafkaServer, topic_prefix: str, tmp_path: Path, alerting: Any
) -> None:
    options: Options = {
        "job": {"max_backlog_events": 500},
        "session": {"max_open_bytes": MAX_OPEN_BYTES},
    }
    with watched_pipeline(own_postgres, kafka, topic_prefix, tmp_path, options) as watched:
        pipeline = watched.pipeline
        job, publisher = pipeline.job, pipeline.publisher
        alert = partial(
            alerting,
            watched.prometheus,
            variables=pipeline.variables,
            addresses=watched.addresses,
            dsn=pipeline.dsn,
        )
        job.start()
        publisher.start()
        watched.wait_until_ready()

        with ExitStack() as fault:
            fault.enter_context(pipeline.load(41, sessions_per_second=10))
            fault.enter_context(lost_caches(pipeline.cache))
            with alert("OutboxRebuilds"):
                fault.close()
        pipeline.wait_for_input(pipeline.expectation())

        publisher.kill()
        with ExitStack() as load:
            load.enter_context(pipeline.load(42, sessions_per_second=20))
            with alert("OutboxInputLags"):
                load.close()
                publisher.start()
                with alert("OutboxLate"):
                    pass
        pipeline.wait_for_input(pipeline.expectation())

        # All with one time: later ones would close the earlier ones by their silence.
        _, start, _ = next(starts_of(["held-10000"]))
        pipeline.hold_open(round(PARTITIONS * NEAR * MAX_OPEN_BYTES / len(start)))
        with alert("OutboxOpenNearLimit"):
            pipeline.release()
        pipeline.wait_for_input(pipeline.expectation())
