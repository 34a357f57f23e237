"""A Kafka with TLS, passwords, rights, quotas and rules: what refuses the whole lane holds it, and it continues by itself once mended."""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient

from publisher.kafka import clients
from publisher.protocol.records import SENT_NOW
from service.errors import CredentialsRefusedError
from service.settings import KafkaSettings, Settings
from tests.support.outbox.batches import Outbox, Session
from tests.support.outbox.deliveries import assert_exactly_once, drained, status_of
from tests.support.processes.failing_lane import FailingLane, bound
from tests.support.processes.publishers import RelayThread, settings_for
from tests.support.queries import query
from tests.support.secured.kafka import PASSWORD, USER, SecuredKafka, right
from tests.support.servers.topic_limits import set_config
from tests.support.waiting import wait_until
from tests.support.watching import Watcher

ATTEMPTS = 10


_OF_OUTPUTS = 8
"""Arguments of `Producer.produce` for an output."""


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    """The module's broker."""
    server = SecuredKafka(tmp_path_factory.mktemp("guarded"))
    server.start()
    yield server
    server.destroy()


@pytest.fixture
def settings(outbox: Outbox, kafka: SecuredKafka, tmp_path: Path) -> Settings:
    """Settings of a publisher that comes by the guarded listener, with all the rights it needs (docs/ecosystem.md)."""
    kafka.allow(
        right("topic", outbox.topic, "describe"),
        right("topic", outbox.topic, "describe_configs"),
        right("topic", outbox.topic, "write"),
        *(
            right("topic", "outbox-progress-", operation, prefix=True)
            for operation in ("create", "describe", "describe_configs", "read", "write")
        ),
        right("transactional_id", "outbox-", "write", prefix=True),
        right("transactional_id", "outbox-", "describe", prefix=True),
        right("group", "outbox-publisher-progress", "describe"),
    )
    return guarded(settings_for(outbox.dsn, kafka.secured_servers), kafka, tmp_path, PASSWORD)


def guarded(
    settings: Settings,
    kafka: SecuredKafka,
    tmp_path: Path,
    password: str,
    request_timeout_s: int = 30,
    **options: str,
) -> Settings:
    """The same settings with the guarded listener's options, the password in a file of its own."""
    secret = tmp_path / "kafka-secret.toml"
    secret.write_text(f'"sasl.password" = "{password}"\n', "utf-8")
    return settings.model_copy(
        update={
            "kafka": KafkaSettings(
                bootstrap_servers=kafka.secured_servers,
                options=kafka.options(**options),
                secret_options_file=secret,
                request_timeout_s=request_timeout_s,
            )
        }
    )


def reasons(dsn: str) -> list[str]:
    """Why lanes stand still."""
    return [lane.stopped_reason for lane in status_of(dsn).lanes if lane.stopped_reason is not None]


def wait_until_held(dsn: str, why: str) -> None:
    """Return once a lane says that it waits for that reason."""
    wait_until(lambda: any(why in reason for reason in reasons(dsn)), lambda: f"{why!r}, but {reasons(dsn)}")


@pytest.mark.guarantee(113)
def test_events_go_out_over_tls_with_a_password_from_a_file(
    outbox: Outbox, settings: Settings, watcher: Watcher
) -> None:
    outbox.batch({"a": [Session([b"1", b"2"], 10)], "b": [Session([b"3"], 11)]})
    with RelayThread(settings) as running:
        wait_until(lambda: running.ended() or drained(outbox.dsn), "everything")
    assert running.error is None
    assert_exactly_once(outbox, watcher)


@pytest.mark.guarantee(108)
@pytest.mark.parametrize(
    ("options", "password", "named"),
    [
        (
            {},
            "wrong-horse",
            r"refuses the credentials: .* sasl\.password in \[kafka\.options\] .*secret_options_file",
        ),
        ({"ssl.ca.location": "probe"}, PASSWORD, r"no TLS connection to .* ssl\.ca\.location"),
    ],
)
def test_wrong_credentials_are_a_clear_error_that_names_the_setting_and_not_the_secret(
    outbox: Outbox, settings: Settings, kafka: SecuredKafka, tmp_path: Path, options: dict[str, str], password: str, named: str
) -> None:  # fmt: skip
    with RelayThread(guarded(settings, kafka, tmp_path, password, 5, **options)) as running:
        wait_until(running.ended, "the publisher to end")
    with pytest.raises(CredentialsRefusedError, match=named) as raised:
        raise running.error or AssertionError
    assert password not in str(raised.value)


@pytest.mark.parametrize("refused", ["the lanes' producers", "the client that all lanes share"])
def test_attempts_with_a_refused_password_hold_no_client(
    outbox: Outbox, settings: Settings, kafka: SecuredKafka, tmp_path: Path, refused: str
) -> None:
    context = bound(guarded(settings, kafka, tmp_path, PASSWORD, 2))
    guarded(settings, kafka, tmp_path, "wrong-horse")
    if refused == "the client that all lanes share":
        # It would keep the connection for which the right password was given.
        context.topics._admin.close()
    failing = FailingLane(context, outbox.lanes)
    held = failing.held_after(ATTEMPTS, Producer, AdminClient, KafkaException)
    assert "not_authorised: Kafka refuses" in failing.reason
    # The reason of the last attempt, and the client that the next one would ask.
    assert len(held) <= 3, held


@pytest.mark.guarantee(68, 113)
@pytest.mark.parametrize(
    ("kind", "name", "operation"),
    [
        ("topic", "{topic}", "write"),
        ("topic", "outbox-progress-", "read"),
    ],
)
def test_a_right_that_is_revoked_holds_the_lanes_until_it_is_granted_again(
    outbox: Outbox, settings: Settings, kafka: SecuredKafka, watcher: Watcher, kind: str, name: str, operation: str
) -> None:  # fmt: skip
    needed = right(kind, name.format(topic=outbox.topic), operation, prefix="{" not in name)
    outbox.batch({"a": [Session([b"1"], 10)]})
    with RelayThread(settings) as running:
        wait_until(lambda: drained(outbox.dsn), "the first batch")
        kafka.revoke(needed)
        if operation == "read":
            # Only who takes a lane over reads.
            query(
                outbox.dsn,
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'publisher lane%%'",
            )
        outbox.batch({"a": [Session([b"2"], 20)], "b": [Session([b"3"], 21)]})
        wait_until_held(outbox.dsn, "not_authorised: Kafka refuses")
        assert not running.ended()
        kafka.allow(needed)
        wait_until(lambda: drained(outbox.dsn) and reasons(outbox.dsn) == [], "the lanes to continue")
    assert_exactly_once(outbox, watcher)
    assert query(outbox.dsn, "SELECT count(*) FROM outbox.parked") == [(0,)]


@pytest.mark.guarantee(68)
def test_a_topic_that_no_broker_may_write_holds_the_lane_until_its_setting_is_mended(
    outbox: Outbox, settings: Settings, kafka: SecuredKafka, watcher: Watcher
) -> None:
    set_config(kafka.bootstrap_servers, outbox.topic, "min.insync.replicas", "2")
    outbox.batch({"a": [Session([b"1"], 10)]})
    with RelayThread(settings):
        wait_until_held(outbox.dsn, "min.insync.replicas=2, but only 1 replica")
        set_config(kafka.bootstrap_servers, outbox.topic, "min.insync.replicas", "1")
        wait_until(lambda: drained(outbox.dsn) and reasons(outbox.dsn) == [], "the lane to continue")
    assert_exactly_once(outbox, watcher)


@pytest.mark.guarantee(68)
@pytest.mark.faults
def test_a_clock_out_of_bounds_holds_the_lane_and_parks_nothing(
    outbox: Outbox, settings: Settings, kafka: SecuredKafka, watcher: Watcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not by a bound of 0 ms: Kafka 4.2 applies it to its own transaction markers, and never ends a transaction whose marker it refused."""
    late_s = [7_200.0]

    class LateProducer(Producer):
        """Sends at the time of a clock that is late."""

        def produce(self, *record: Any) -> None:
            if late_s and len(record) == _OF_OUTPUTS and record[6] == SENT_NOW:
                record = (*record[:6], round(1_000 * (time.time() - late_s[0])), *record[7:])
            super().produce(*record)

    monkeypatch.setattr(clients, "Producer", LateProducer)
    set_config(kafka.bootstrap_servers, outbox.topic, "message.timestamp.before.max.ms", "3600000")
    outbox.batch({"a": [Session([b"1", b"2"], 10)]})
    with RelayThread(settings):
        wait_until_held(outbox.dsn, "record_refused: Kafka refuses the time of sending")
        late_s.clear()
        wait_until(lambda: drained(outbox.dsn) and reasons(outbox.dsn) == [], "the lane to continue")
    assert_exactly_once(outbox, watcher)
    assert query(outbox.dsn, "SELECT count(*) FROM outbox.parked") == [(0,)]


@pytest.mark.guarantee(68)
@pytest.mark.faults
def test_a_quota_only_slows_the_lanes_down(
    outbox: Outbox, settings: Settings, kafka: SecuredKafka, watcher: Watcher
) -> None:
    quota(kafka, "--add-config producer_byte_rate=20000")
    try:
        for batch in range(4):
            outbox.batch({f"k{n}": [Session([b"x" * 10_000], 100 * batch + n + 1)] for n in range(4)})
        with RelayThread(settings):
            wait_until(lambda: drained(outbox.dsn), "everything")
            assert reasons(outbox.dsn) == []
        assert_exactly_once(outbox, watcher)
    finally:
        quota(kafka, "--delete-config producer_byte_rate")


@pytest.mark.guarantee(69)
@pytest.mark.faults
def test_a_backlog_gets_through_a_quota_that_no_full_transaction_fits_into(
    outbox: Outbox, settings: Settings, kafka: SecuredKafka, watcher: Watcher
) -> None:
    """A thousand rows of 1 kB take longer than the transaction's timeout: sent again and again as they are, none would get through."""
    publisher = settings.publisher.model_copy(update={"transaction_timeout_ms": 5_000})
    slow = settings.model_copy(update={"publisher": publisher})
    quota(kafka, "--add-config producer_byte_rate=100000")
    try:
        outbox.batch({f"k{n:04d}": [Session([os.urandom(1_000)], n + 1)] for n in range(3_000)})
        seen: set[str] = set()

        def through() -> bool:
            seen.update(reasons(outbox.dsn))
            return drained(outbox.dsn)

        with RelayThread(slow):
            wait_until(through, lambda: f"everything, but {status_of(outbox.dsn).lanes}", 240)
        assert any("transactions are held to" in reason for reason in seen), seen
        assert_exactly_once(outbox, watcher)
        assert query(outbox.dsn, "SELECT count(*) FROM outbox.parked") == [(0,)]
    finally:
        quota(kafka, "--delete-config producer_byte_rate")


def quota(kafka: SecuredKafka, change: str) -> None:
    """Change what the publisher's user may send."""
    kafka.run_tool(
        "kafka.admin.ConfigCommand",
        "--alter",
        "--entity-type",
        "users",
        "--entity-name",
        USER,
        *change.split(),
    )
