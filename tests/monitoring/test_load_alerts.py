"""Each alert about a job under load fires on its fault and ends after it: input that outruns it, late outputs, memory, a lost cache."""

import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from db.migrate import upgrade
from devstack.kafka import KafkaServer
from devstack.postgres import Postgres
from tests.support.monitoring.prometheus import Prometheus
from tests.support.pipeline.options import Options
from tests.support.pipeline.pipeline import Pipeline
from tests.support.scraping import asked, free_port

MAX_OPEN_BYTES = 1_500_000

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
    upgrade(own_postgres.dsn())
    job_port, publisher_port = free_port(), free_port()
    options: Options = {
        "metrics": {"job_port": job_port, "port": publisher_port, "refresh_s": 0.2},
        "job": {"max_backlog_events": 500},
        "session": {"max_open_bytes": MAX_OPEN_BYTES},
    }
    targets = {"spark-job": [job_port], "publisher": [publisher_port]}
    addresses = {"JOB": f"http://127.0.0.1:{job_port}", "PUBLISHER": f"http://127.0.0.1:{publisher_port}"}
    with (
        Pipeline(
            own_postgres.dsn(), kafka.bootstrap_servers, topic_prefix, tmp_path, options=options
        ) as pipeline,
        Prometheus(tmp_path, targets) as prometheus,
    ):
        job, publisher = pipeline.job, pipeline.publisher
        alert = partial(
            alerting, prometheus, variables=pipeline.variables, addresses=addresses, dsn=pipeline.dsn
        )
        job.start()
        publisher.start()
        pipeline.wait_until(lambda: asked(job_port, "readyz")[0] == 200, "a job that is ready", alive=(job,))

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

        def near_the_limit() -> bool:
            pipeline.hold_open(1_000)
            done = pipeline.batches() + 1
            pipeline.wait_until(lambda: pipeline.batches() >= done, "the batch with them", alive=(job,))
            (found,) = prometheus.query("max(outbox_largest_partition_bytes / outbox_max_open_bytes)")
            return float(found["value"][1]) > 0.82

        pipeline.wait_until(near_the_limit, "open sessions near the limit", alive=(job,))
        with alert("OutboxOpenNearLimit"):
            pipeline.release()
        pipeline.wait_for_input(pipeline.expectation())
