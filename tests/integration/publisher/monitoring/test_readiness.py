"""A publisher is ready while it delivers what there is, says why when it does not, and is unhealthy only when a thread hangs."""

import json
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from db.migrate import upgrade
from devstack.kafka import Kafka, KafkaServer
from devstack.postgres import Postgres
from devstack.topics import create_topics
from publisher.assignment import lane_workers
from publisher.delivery.sender import StepOutcome
from publisher.lane.lane import Lane
from publisher.monitoring.health import ProcessHealth
from publisher.status import endpoint
from service.probe import probe
from service.settings import MetricsSettings, Settings
from tests.support.outbox.batches import Outbox, Session, simple
from tests.support.outbox.deliveries import drained
from tests.support.processes.publishers import RelayThread, publisher_service, settings_for
from tests.support.scraping import asked, by_label, free_port, scrape
from tests.support.waiting import DEADLINE_S, wait_until


class Served:
    """A publisher in a thread with its endpoint."""

    def __init__(self, settings: Settings, condition: ProcessHealth) -> None:
        self.port = settings.metrics.port
        self.settings, self.condition = settings, condition

    def ready(self) -> tuple[int, dict[str, Any]]:
        return asked(self.port, "readyz")

    def healthy(self) -> tuple[int, dict[str, Any]]:
        return asked(self.port, "healthz")

    def wait_until_ready(self) -> None:
        wait_until(lambda: self.ready()[0] == 200, lambda: f"ready: {self.ready()}")

    def wait_for_reason(self, *texts: str) -> None:
        """Wait until it is not ready and the reasons hold all these texts."""

        def is_told() -> bool:
            status, answer = self.ready()
            return status == 503 and all(any(text in each for each in answer["reasons"]) for text in texts)

        wait_until(is_told, lambda: f"{texts}: {self.ready()}")


@contextmanager
def served(settings: Settings, condition: ProcessHealth | None = None, **metrics: Any) -> Iterator[Served]:
    """An endpoint; the publisher itself is the caller's."""
    with_port = settings.model_copy(
        update={"metrics": MetricsSettings(port=free_port(), refresh_s=0.1, **metrics)}
    )
    publisher = Served(with_port, condition or ProcessHealth())
    with endpoint.served(publisher.settings, publisher.condition):
        yield publisher


@pytest.mark.guarantee(132)
def test_ready_while_idle_and_while_a_backlog_moves_and_a_stopped_lane_is_named(
    outbox: Outbox, kafka: KafkaServer, settings: Settings
) -> None:
    missing = f"{outbox.topic}-missing"
    with served(settings.model_copy(update={"publisher": quick(settings)})) as publisher:
        status, answer = publisher.ready()
        assert (status, answer["reasons"]) == (503, ["starting: Postgres and Kafka have not answered yet"])
        assert publisher.healthy()[0] == 200
        with RelayThread(publisher.settings, publisher.condition):
            publisher.wait_until_ready()
            assert [lane["state"] for lane in publisher.ready()[1]["lanes"]] == ["running", "running"]
            before = scrape(publisher.port)
            for batch in range(1, 20):
                outbox.batch(simple(batch, keys=40))
            answers = []
            while not drained(outbox.dsn):
                answers.append(publisher.ready())
            assert answers
            assert [answer for answer in answers if answer[0] != 200] == []
            after = scrape(publisher.port)
            assert (
                after["outbox_delivered_sessions_total", ()] - before["outbox_delivered_sessions_total", ()]
                == 19 * 40
            )
            assert (after["outbox_ready", ()], after["outbox_lanes_held", ()]) == (1, 2)
            assert after["outbox_heartbeat_age_seconds", ()] < DEADLINE_S
            assert ("outbox_producer_queue_messages", ()) in after

            outbox.batch({"c": [Session([b"3"], 20, topics=[missing])]})
            lane = outbox.lane_of("c")
            publisher.wait_for_reason(f"lane {lane} is stopped: output_topic_missing")
            (reason,) = publisher.ready()[1]["reasons"]
            assert missing in reason
            assert publisher.healthy()[0] == 200
            stops = by_label(scrape(publisher.port), "outbox_lane_failures_total")["stopped"]
            assert stops > by_label(after, "outbox_lane_failures_total")["stopped"]
            create_topics(kafka.bootstrap_servers, {missing: (1, {})})
            publisher.wait_until_ready()
        assert publisher.ready()[1]["reasons"] == ["the process is stopping"]


def quick(settings: Settings) -> Any:
    """Many small transactions, so that a backlog lasts."""
    return settings.publisher.model_copy(update={"transaction_sessions": 5})


def test_a_process_without_lanes_is_ready_while_others_hold_them(
    database: str, topic: str, kafka: KafkaServer
) -> None:
    Outbox(database, topic, lanes=1)
    settings = settings_for(database, kafka.bootstrap_servers)
    with served(settings) as first, RelayThread(first.settings, first.condition):
        first.wait_until_ready()
        with served(settings) as second, RelayThread(second.settings, second.condition):
            second.wait_until_ready()
            assert (first.ready()[1]["notes"], len(first.ready()[1]["lanes"])) == ([], 1)
            answer = second.ready()[1]
            assert answer["notes"] == ["standing by: other processes hold every lane that has work"]


@pytest.mark.guarantee(131)
def test_a_server_that_is_away_makes_it_unready_and_never_unhealthy(
    tmp_path: Path, topic_prefix: str
) -> None:
    postgres, kafka = Postgres(tmp_path / "postgres", fast=True), Kafka(tmp_path / "kafka", fast=True)
    try:
        postgres.start()
        kafka.start()
        upgrade(postgres.dsn())
        topic = f"{topic_prefix}events"
        create_topics(kafka.bootstrap_servers, {topic: (1, {})})
        outbox = Outbox(postgres.dsn(), topic)
        settings = settings_for(outbox.dsn, kafka.bootstrap_servers, transaction_timeout_ms=5_000)
        with served(settings) as publisher, RelayThread(publisher.settings, publisher.condition):
            publisher.wait_until_ready()
            postgres.stop()
            publisher.wait_for_reason(
                "cannot read the assignment of lanes: ", "lane 0 is retrying: ", "lane 1 is retrying: "
            )
            assert publisher.healthy()[0] == 200
            assert by_label(scrape(publisher.port), "outbox_lane_failures_total")["postgres"] >= 2
            postgres.start()
            publisher.wait_until_ready()

            kafka.kill()
            outbox.batch(simple(1, keys=40))
            publisher.wait_for_reason("lane 0 is retrying: Kafka: ", "lane 1 is retrying: Kafka: ")
            assert publisher.healthy()[0] == 200
            kafka.start()
            publisher.wait_until_ready()
            wait_until(lambda: drained(outbox.dsn), "the delivery")
            reopened = by_label(scrape(publisher.port), "outbox_lanes_opened_total")["reopened"]
            assert reopened >= 4
    finally:
        kafka.destroy()
        postgres.destroy()


def test_a_process_with_an_endpoint_is_probed_and_ends_in_order(
    settings: Settings, outbox: Outbox, tmp_path: Path
) -> None:
    """A thread that took the signal for itself would end the process at once."""
    port = free_port()
    with publisher_service(
        settings, tmp_path / "publisher.log", {"OUTBOX_METRICS__PORT": str(port)}
    ) as process:
        wait_until(lambda: probe(f"http://127.0.0.1:{port}/readyz")[0] == 0, process.log)
        assert probe(f"http://127.0.0.1:{port}/healthz")[0] == 0
        assert {
            name.split()[0] for name in json.loads(probe(f"http://127.0.0.1:{port}/healthz")[1])["loops"]
        } == {
            "heartbeat",
            "lane",
            "main",
            "wakeup",
        }
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 0, process.log()


@pytest.mark.guarantee(131)
def test_a_lane_whose_thread_hangs_makes_it_unhealthy(
    settings: Settings, outbox: Outbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    hang, release = threading.Event(), threading.Event()
    as_ever = Lane.run_once

    def run_once(lane: Lane) -> StepOutcome:
        if hang.is_set():
            release.wait(DEADLINE_S)
        return as_ever(lane)

    monkeypatch.setattr(Lane, "run_once", run_once)
    monkeypatch.setattr(lane_workers, "longest_turn_s", lambda _settings: 1.0)
    with (
        served(settings, ProcessHealth(hung_s=1.0), progress_s=1) as publisher,
        RelayThread(publisher.settings, publisher.condition),
    ):
        publisher.wait_until_ready()
        # On a slow machine a turn may take longer than the second it is allowed here.
        wait_until(lambda: publisher.healthy()[0] == 200, "a process that is healthy")
        hang.set()
        wait_until(lambda: publisher.healthy()[0] == 503, "a process that is not healthy")
        reasons = publisher.healthy()[1]["reasons"]
        assert all(reason.startswith("lane 1/") and "has not turned for" in reason for reason in reasons)
        publisher.wait_for_reason("lane 0 has been stalled for")
        release.set()
        hang.clear()
        publisher.wait_until_ready()
        wait_until(lambda: publisher.healthy()[0] == 200, "a process that is healthy again")
