"""A pipeline that a real Prometheus watches."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from db.migrate import upgrade
from devstack.kafka import KafkaServer
from devstack.postgres import Postgres
from tests.support.monitoring.prometheus import Prometheus
from tests.support.pipeline.options import Options
from tests.support.pipeline.pipeline import Pipeline
from tests.support.scraping import asked, free_port


@dataclass(frozen=True)
class Watched:
    """`addresses`: of the metrics endpoints, by the runbook's variables."""

    pipeline: Pipeline
    prometheus: Prometheus
    addresses: Mapping[str, str]

    def wait_until_ready(self) -> None:
        """Until the job says so."""
        job = self.pipeline.job
        port = int(self.addresses["JOB"].rpartition(":")[2])
        self.pipeline.wait_until(lambda: asked(port, "readyz")[0] == 200, "a job that is ready", alive=(job,))


@contextmanager
def watched_pipeline(
    postgres: Postgres, kafka: KafkaServer, topic_prefix: str, folder: Path, options: Options
) -> Iterator[Watched]:
    """Make one on an empty Postgres; no service is started. `options`: of both services, `metrics` without the ports."""
    upgrade(postgres.dsn())
    job_port, publisher_port = free_port(), free_port()
    ports = {"job_port": job_port, "port": publisher_port, "refresh_s": 0.2}
    given = options | {"metrics": ports | options.get("metrics", {})}
    targets = {"spark-job": [job_port], "publisher": [publisher_port]}
    addresses = {"JOB": f"http://127.0.0.1:{job_port}", "PUBLISHER": f"http://127.0.0.1:{publisher_port}"}
    with (
        Pipeline(postgres.dsn(), kafka.bootstrap_servers, topic_prefix, folder, options=given) as pipeline,
        Prometheus(folder, targets) as prometheus,
    ):
        yield Watched(pipeline, prometheus, addresses)
