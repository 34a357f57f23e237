"""A publisher whose connections to Postgres go through a PgBouncer in session mode delivers exactly once, also after it is killed."""

from collections.abc import Callable
from pathlib import Path

import pytest

from devstack.kafka import KafkaServer
from tests.support.outbox.audits import failed, run_audit
from tests.support.outbox.batches import Outbox, simple
from tests.support.outbox.deliveries import assert_exactly_once, drained
from tests.support.processes.publishers import publisher_service, settings_for
from tests.support.waiting import wait_until
from tests.support.watching import Watcher


@pytest.mark.guarantee(162)
def test_a_publisher_behind_it_delivers_exactly_once_and_continues_after_a_kill(
    outbox: Outbox,
    kafka: KafkaServer,
    watcher: Watcher,
    through_pgbouncer: Callable[[str, str], str],
    tmp_path: Path,
) -> None:
    settings = settings_for(through_pgbouncer(outbox.dsn, "session"), kafka.bootstrap_servers)
    outbox.batch(simple(1, 20))
    with publisher_service(settings, tmp_path / "publisher.log") as publisher:
        wait_until(lambda: drained(outbox.dsn), publisher.log)
        publisher.kill()
        outbox.batch(simple(2, 20))
        publisher.start()
        wait_until(lambda: drained(outbox.dsn), publisher.log)
        outbox.batch(simple(3, 20))
        assert_exactly_once(outbox, watcher)
    assert failed(run_audit(settings, tmp_path, kafka=True)) == {}
