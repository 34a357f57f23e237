"""How fast a partition is archived: read, written, read back, proven and dropped, as `publisher retention run` does it.

Values are random, so nothing is gained by compression.
"""

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from uuid import uuid4

from pydantic import SecretStr

from benchmarks.support.servers import Servers
from db.migrate import upgrade
from publisher.retention.retention import run_once
from service.settings import PostgresSettings, PublisherSettings, RetentionSettings, Settings
from tests.support.outbox.batches import Outbox, Session
from tests.support.outbox.old_outputs import PARTITION, add_batches, deliver_all
from tests.support.s3.server import BUCKET, CREDENTIALS, s3_server

TITLE = "Archiving a partition"
LABELS = {"rate": "MB of values/s", "seconds": "seconds", "cpu": "CPU of the process, s"}
_ROWS, _VALUE_BYTES = 100, 10_000
"""A batch of a megabyte."""

Place = Mapping[str, str]
"""Settings of retention: where an archive is."""


@contextmanager
def places(servers: Servers, s3: str, endpoint: str) -> Iterator[dict[str, Place]]:
    """Yield {name: place} of a folder and of S3. `s3` empty: a server that is started here, with credentials in the environment."""
    folder = servers.folder / "archive"
    folder.mkdir(mode=0o700)
    found: dict[str, Place] = {"folder": {"archive": f"file://{folder}"}}
    if s3:
        yield found | {"S3": {"archive": s3} | ({"archive_endpoint": endpoint} if endpoint else {})}
        return
    os.environ.update(CREDENTIALS)
    with s3_server(servers.folder / "s3.log") as port:
        here = {"archive_endpoint": f"http://127.0.0.1:{port}", "archive_region": "us-east-1"}
        yield found | {"S3": {"archive": f"s3://{BUCKET}"} | here}


def measure(servers: Servers, place: Place, megabytes: int) -> dict[str, float]:
    """Archive a partition of an outbox of its own. Raises RuntimeError where it was not archived whole."""
    name = f"archive_{uuid4().hex[:12]}"
    dsn = servers.stack.create_database(name)
    try:
        _fill(dsn, megabytes)
        settings = Settings.model_construct(
            postgres=PostgresSettings(dsn=SecretStr(dsn)),
            retention=RetentionSettings.model_validate({"keep_s": 86_400, **place}),
            publisher=PublisherSettings(),
        )
        began, cpu = time.perf_counter(), time.process_time()
        report = run_once(settings)
        took_s, cpu_s = time.perf_counter() - began, time.process_time() - cpu
        if report.failed is not None or report.archived_rows != megabytes * _ROWS:
            raise RuntimeError(
                f"{report.archived_rows} of {megabytes * _ROWS} rows were archived: {report.failed}"
            )
        return {"rate": megabytes / took_s, "seconds": took_s, "cpu": cpu_s}
    finally:
        servers.stack.postgres.drop_database(name)


def expected_s(megabytes: int) -> float:
    """Return how long a round takes, with filling the outbox."""
    return 10 + megabytes * 0.1


def _fill(dsn: str, megabytes: int) -> None:
    upgrade(dsn)
    outbox = Outbox(dsn, "pages")
    for batch in range(1, megabytes + 1):
        values = (os.urandom(_VALUE_BYTES) for _ in range(_ROWS))
        outbox.batch({f"key-{n}": [Session([value], batch * 1_000 + n)] for n, value in enumerate(values)})
    last = PARTITION + 1
    add_batches(dsn, last, every=1_000)
    deliver_all(dsn, last)
