"""An alert can be made of what Prometheus is told; telling it costs the lanes nothing."""

import psycopg
import pytest

from devstack.kafka import KafkaServer
from devstack.topics import create_topics
from publisher.monitoring.health import ProcessHealth
from publisher.status import endpoint
from publisher.status.outbox_metrics import PublisherOutboxMetrics
from service.errors import SettingsError
from service.settings import MetricsSettings, PostgresSettings, Settings
from tests.support.outbox.batches import Outbox, Session
from tests.support.outbox.deliveries import drained
from tests.support.processes.publishers import RelayThread, settings_for
from tests.support.queries import query
from tests.support.scraping import free_port, scrape
from tests.support.waiting import wait_until


def with_metrics(settings: Settings, **changed: object) -> Settings:
    """Settings with an endpoint."""
    return settings.model_copy(
        update={"metrics": MetricsSettings(port=free_port(), refresh_s=0.1), **changed}
    )


@pytest.mark.guarantee(130)
def test_delivered_parked_stopped_and_lag_are_told(outbox: Outbox, kafka: KafkaServer) -> None:
    small, missing = f"{outbox.topic}-small", f"{outbox.topic}-missing"
    create_topics(kafka.bootstrap_servers, {small: (1, {"max.message.bytes": "1000"})})
    settings = with_metrics(settings_for(outbox.dsn, kafka.bootstrap_servers))
    outbox.batch({"a": [Session([b"1", b"2"], 10)], "b": [Session([b"x" * 2_000], 11, topics=[small])]})
    with endpoint.served(settings, ProcessHealth()):
        wait_until(lambda: ("outbox_postgres_up", ()) in scrape(settings.metrics.port), "the first look")
        before = scrape(settings.metrics.port)
        with RelayThread(settings):
            wait_until(lambda: drained(outbox.dsn), "the first batch")
            outbox.batch({"c": [Session([b"3"], 20, topics=[missing])]})
            lane = ("epoch", "1"), ("lane", str(outbox.lane_of("c")))
            stopped = ("outbox_lane_stopped", (*lane, ("reason", "output_topic_missing")))
            wait_until(lambda: scrape(settings.metrics.port).get(stopped) == 1, "the stopped lane")
            found = scrape(settings.metrics.port)
            assert found["outbox_parked_rows", (("reason", "too_large"),)] == 1
            assert found["outbox_parked_rows", (("reason", "invalid"),)] == 0
            assert (found["outbox_lag_batches", lane], found["outbox_lag_rows", lane]) == (1, 1)
            assert found["outbox_lag_seconds", lane] > 0
            create_topics(kafka.bootstrap_servers, {missing: (1, {})})
            wait_until(lambda: stopped not in scrape(settings.metrics.port), "the lane to continue")
            wait_until(lambda: drained(outbox.dsn), "the second batch")
        after = scrape(settings.metrics.port)
    delivered = ("outbox_delivered_events_total", ())
    assert after[delivered] - before[delivered] == 3
    committed = ("outbox_transactions_total", (("outcome", "committed"),))
    count = ("outbox_transaction_seconds_count", ())
    transactions = query(outbox.dsn, "SELECT count(*) FROM outbox.delivery")[0][0]
    assert after[committed] - before[committed] == after[count] - before[count] == transactions
    # The sessions that were sent, not the parked one; their end events are of 1970.
    for name in ("outbox_commit_to_delivered_seconds_count", "outbox_untimed_sessions_total"):
        assert after[name, ()] - before[name, ()] == 2, name
    spent_s = ("outbox_commit_to_delivered_seconds_sum", ())
    assert 0 < after[spent_s] - before[spent_s] < 600


@pytest.mark.guarantee(130)
def test_a_scrape_answers_while_postgres_is_locked_or_away_and_says_so(
    outbox: Outbox, kafka: KafkaServer
) -> None:
    settings = with_metrics(settings_for(outbox.dsn, kafka.bootstrap_servers))
    up = ("outbox_postgres_up", ())
    with endpoint.served(settings, ProcessHealth()):
        wait_until(lambda: scrape(settings.metrics.port)[up] == 1, "the first look")
        with psycopg.connect(outbox.dsn) as holder:
            holder.execute("LOCK TABLE outbox.parked IN ACCESS EXCLUSIVE MODE")
            # No look gets through, yet every scrape is answered: what it tells is the last look, then that there is none.
            assert scrape(settings.metrics.port)[up] == 1
            wait_until(lambda: scrape(settings.metrics.port)[up] == 0, "the look to give up")
        wait_until(lambda: scrape(settings.metrics.port)[up] == 1, "the next look")
    away = with_metrics(settings, postgres=PostgresSettings(dsn="postgresql://127.0.0.1:1/none"))  # type: ignore[arg-type]
    with endpoint.served(away, ProcessHealth()):
        found = scrape(away.metrics.port)
        assert found[up] == 0
        assert not any(name.startswith(("outbox_lag", "outbox_parked")) for name, _ in found)


def test_a_port_in_use_is_a_clear_error_at_the_start(outbox: Outbox, kafka: KafkaServer) -> None:
    settings = with_metrics(settings_for(outbox.dsn, kafka.bootstrap_servers))
    with (
        endpoint.served(settings, ProcessHealth()),
        pytest.raises(SettingsError, match=rf"127.0.0.1:{settings.metrics.port}: .*OUTBOX_METRICS__PORT"),
        endpoint.served(settings, ProcessHealth()),
    ):
        pass
    with endpoint.served(settings_for(outbox.dsn, kafka.bootstrap_servers), ProcessHealth()):
        pass  # port 0: nothing listens


def test_a_lane_that_tries_again_is_none_that_stands_still(outbox: Outbox) -> None:
    polled = PublisherOutboxMetrics(90.0)
    with psycopg.connect(outbox.dsn, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO outbox.lane (epoch, lane, stopped_reason, stopped_why) VALUES (1, 0, 'retrying: Kafka: away', NULL),"
            " (1, 1, 'kafka_lost: gone', 'kafka_lost') ON CONFLICT (epoch, lane) DO UPDATE"
            " SET stopped_reason = excluded.stopped_reason, stopped_why = excluded.stopped_why"
        )
        polled.poll(connection)
    (stopped,) = [family for family in polled.collect() if family.name == "outbox_lane_stopped"]
    assert [(sample.labels["lane"], sample.labels["reason"]) for sample in stopped.samples] == [
        ("1", "kafka_lost")
    ]


def test_an_old_look_counts_as_none(outbox: Outbox) -> None:
    for max_age_s, up in ((90.0, 1), (0.0, 0)):
        polled = PublisherOutboxMetrics(max_age_s)
        with psycopg.connect(outbox.dsn, autocommit=True) as connection:
            polled.poll(connection)
        found = {family.name: family.samples for family in polled.collect()}
        assert found["outbox_postgres_up"][0].value == up
        assert ("outbox_parked_rows" in found) == bool(up)
