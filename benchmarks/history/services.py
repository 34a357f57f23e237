"""What the services' own looks at the outbox cost: the publisher's status and metrics, the job's brake, and the audit from SQL alone."""

import multiprocessing
import resource
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
from pydantic import SecretStr

from db.connection import connect
from db.statements import queries
from publisher.audit.audit import AuditRequest, audit
from publisher.audit.scope import Limits
from publisher.status import outbox_metrics
from publisher.status import publisher_status as status
from service.settings import KafkaSettings, PostgresSettings, PublisherSettings, Settings
from spark_job.sink.backpressure import BacklogReader

_QUESTIONS = queries("benchmarks.history", "questions")

Connection = psycopg.Connection[Any]
_NO_KAFKA = "localhost:1"


class Audit(NamedTuple):
    """One whole audit: seconds, those of CPU in its process and the most memory that it had, in MB, and seconds by phase."""

    seconds: float
    cpu_s: float
    peak_mb: float
    phases: dict[str, float]


def looks(connection: Connection) -> dict[str, float]:
    """Seconds of each look, warm: in order, and with the newer half of all batches undelivered."""
    found = _look(connection, "delivered")
    with connection.transaction(force_rollback=True):
        ((newest,),) = connection.execute(_QUESTIONS["newest_batch"]).fetchall()
        connection.execute(_QUESTIONS["forget_deliveries"], {"to_batch": newest // 2})
        connection.execute(_QUESTIONS["set_lanes_back"])
        return found | _look(connection, "half undelivered")


def _look(connection: Connection, state: str) -> dict[str, float]:
    asked: dict[str, Callable[[], object]] = {
        "publisher status": lambda: status.read_lanes(connection, status.COUNT_LIMIT),
        "the publisher's metrics": lambda: status.read_lanes(connection, outbox_metrics.COUNT_LIMIT),
        "the job's look before each batch": BacklogReader(connection).read,
    }
    found = {}
    for name, ask in asked.items():
        ask()
        began = time.perf_counter()
        ask()
        found[f"{name}, {state}"] = round(time.perf_counter() - began, 4)
    return found


def audit_alone(dsn: str) -> Audit:
    """`publisher audit` in a process of its own. Raises RuntimeError where it finds anything: the week is in order."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
        return process.submit(_audit, dsn).result()


def _audit(dsn: str) -> Audit:
    began: dict[str, float] = {}

    def phase(name: str, steps: int) -> Callable[[int], None]:
        began[name] = time.perf_counter()
        return lambda done: None

    # Built without the environment, which would win and may name other servers.
    settings = Settings.model_construct(
        postgres=PostgresSettings(dsn=SecretStr(dsn)),
        kafka=KafkaSettings(bootstrap_servers=_NO_KAFKA),
        publisher=PublisherSettings(),
    )
    start, cpu = time.perf_counter(), time.process_time()
    with connect(settings.postgres, "benchmark", autocommit=True) as connection:
        report = audit(connection, settings, AuditRequest(Limits(), False, None, Path("lost")), phase)
    end = time.perf_counter()
    if not report.clean:
        raise RuntimeError(f"not clean: {[check for check in report.checks if check.failed]}")
    edges = [*began.values(), end]
    phases = {name: round(edges[n + 1] - edges[n], 1) for n, name in enumerate(began)}
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return Audit(round(end - start, 1), round(time.process_time() - cpu, 1), round(peak_mb), phases)
