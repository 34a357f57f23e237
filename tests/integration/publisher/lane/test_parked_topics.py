"""A topic name that is wrong stops a lane only until somebody decides that the rows for it are parked."""

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from devstack.kafka import KafkaServer
from devstack.topics import create_topics
from publisher.cli import app
from service.errors import SettingsError
from service.settings import Settings
from tests.support.json_documents import json_document
from tests.support.outbox.audits import failed, run_audit
from tests.support.outbox.batches import Outbox, Session
from tests.support.outbox.deliveries import assert_exactly_once, drained, status_of
from tests.support.processes.environment import variables_of
from tests.support.processes.publishers import RelayThread
from tests.support.queries import query
from tests.support.waiting import wait_until
from tests.support.watching import Watcher

PARKED = "SELECT session_key, batch_id, reason, state FROM outbox.parked ORDER BY batch_id, session_key"


@pytest.fixture
def wrong(topic_prefix: str) -> str:
    """The name of a topic that does not exist."""
    return f"{topic_prefix}clikcs"


def publisher(settings: Settings, *arguments: str, **environment: str) -> Result:
    """`publisher ...` in this process. An explained error is in `exception`."""
    return CliRunner(env=variables_of(settings) | environment).invoke(app, list(arguments))


def park(settings: Settings, topic: str, *more: str) -> dict[str, Any]:
    result = publisher(settings, "parked", "park", "--topic", topic, "--yes", "--json", *more)
    assert result.exception is None, result.exception
    found: dict[str, Any] = json_document(result.stdout)
    return found


def wait_for_the_stop(outbox: Outbox, wrong: str) -> None:
    """Until a lane stopped for the topic, and names the way on."""
    wait_until(
        lambda: any(
            f"publisher parked park --topic {wrong}" in (lane.stopped_reason or "")
            for lane in status_of(outbox.dsn).lanes
        ),
        "the stop, with the way on",
    )


def with_wrong_rows(outbox: Outbox, wrong: str) -> list[tuple[bytes, bytes | None, str]]:
    """Write two batches: in each, one row also goes to the wrong topic. Return what is to be delivered without these."""
    expected: list[tuple[bytes, bytes | None, str]] = []
    for number in (1, 2):
        end = 100 * number
        outbox.batch({"a": [Session([b"1"], end)], "c": [Session([b"3"], end + 2)]})
        expected = list(outbox.written)
        outbox.batch({"b": [Session([b"2", b"2"], end + 1, topics=[outbox.topic, wrong])]})
        outbox.written = list(expected)
    return expected


def test_the_lane_continues_without_the_rows_for_a_missing_topic_once_that_is_decided(
    outbox: Outbox, settings: Settings, watcher: Watcher, wrong: str, tmp_path: Path
) -> None:
    with_wrong_rows(outbox, wrong)
    with RelayThread(settings):
        wait_for_the_stop(outbox, wrong)
        assert query(outbox.dsn, PARKED) == []
        dry = park(settings, wrong, "--dry-run")
        assert (dry["rows"], dry["session_keys"], dry["outputs"], dry["changed"]) == (2, 1, 4, False)
        assert query(outbox.dsn, PARKED) == []
        assert park(settings, wrong)["changed"]
        wait_until(lambda: drained(outbox.dsn), "everything but the rows for the wrong topic")
        assert list(status_of(outbox.dsn).parked_topics) == [wrong]
    assert_exactly_once(outbox, watcher)
    assert query(outbox.dsn, PARKED) == [
        ("b", 2, "topic_missing", "parked"),
        ("b", 4, "topic_missing", "parked"),
    ]
    report = run_audit(settings, tmp_path, kafka=True)
    assert (failed(report), report.clean) == ({}, True)


def test_parked_rows_go_out_once_the_topic_exists(
    outbox: Outbox, settings: Settings, kafka: KafkaServer, watcher: Watcher, wrong: str, tmp_path: Path
) -> None:
    with_wrong_rows(outbox, wrong)
    park(settings, wrong)
    with RelayThread(settings):
        wait_until(lambda: drained(outbox.dsn), "everything but the rows for the wrong topic")
        create_topics(kafka.bootstrap_servers, {wrong: (1, {})})
        requeued = publisher(settings, "parked", "requeue", "--reason", "topic_missing", "--yes", "--json")
        assert json_document(requeued.stdout)["requeued"] == 2
        wait_until(lambda: drained(outbox.dsn), "the requeued rows")
    with Watcher(kafka.bootstrap_servers, wrong) as other:
        wait_until(lambda: len(other.seen) == 2, "what goes to the topic that is there by now")
    assert [state for *_, state in query(outbox.dsn, PARKED)] == ["requeued", "requeued"]
    report = run_audit(settings, tmp_path, kafka=True)
    assert (failed(report), report.clean) == ({}, True)


def test_a_decision_that_is_taken_back_stops_the_lane_again(
    outbox: Outbox, settings: Settings, wrong: str
) -> None:
    outbox.batch({"b": [Session([b"2"], 1, topics=[wrong])]})
    park(settings, wrong)
    assert not park(settings, wrong, "--end")["parks"]
    with RelayThread(settings):
        wait_until(
            lambda: any(
                (lane.stopped_reason or "").startswith("output_topic_missing")
                for lane in status_of(outbox.dsn).lanes
            ),
            "the stop",
        )
    assert query(outbox.dsn, PARKED) == []


def test_nothing_is_decided_about_a_topic_that_exists_or_that_nothing_waits_for(
    outbox: Outbox, settings: Settings, wrong: str
) -> None:
    outbox.batch({"a": [Session([b"1"], 1)], "b": [Session([b"2"], 2, topics=[wrong])]})
    for arguments, environment, message in (
        ((outbox.topic, "--yes"), {}, "exists: its rows go out"),
        ((f"{wrong}x", "--yes"), {}, "no undelivered row goes to topic"),
        ((wrong, "--yes"), {"OUTBOX_PUBLISHER__CREATE_TOPICS": "true"}, "create_topics = true makes topic"),
        ((wrong, "--end", "--yes"), {}, "no such decision stands"),
        ((wrong,), {}, "say --yes. Nothing was changed"),
    ):
        refused = publisher(settings, "parked", "park", "--topic", *arguments, **environment).exception
        assert isinstance(refused, SettingsError), refused
        assert message in str(refused)
    assert query(outbox.dsn, "SELECT count(*) FROM outbox.parked_topic") == [(0,)]


def test_a_decision_parks_nothing_while_the_topic_is_there(
    outbox: Outbox, settings: Settings, kafka: KafkaServer, wrong: str
) -> None:
    outbox.batch({"b": [Session([b"2"], 1, topics=[wrong])]})
    park(settings, wrong)
    create_topics(kafka.bootstrap_servers, {wrong: (1, {})})
    with RelayThread(settings), Watcher(kafka.bootstrap_servers, wrong) as other:
        wait_until(lambda: len(other.seen) == 1, "the row")
    assert query(outbox.dsn, PARKED) == []


def test_a_name_that_differs_from_a_topic_only_by_dots_and_underscores_is_missing_too(
    outbox: Outbox, settings: Settings, kafka: KafkaServer, topic_prefix: str, watcher: Watcher
) -> None:
    create_topics(kafka.bootstrap_servers, {f"{topic_prefix}page_views": (1, {})})
    wrong = f"{topic_prefix}page.views"
    with_wrong_rows(outbox, wrong)
    with RelayThread(settings):
        wait_for_the_stop(outbox, wrong)
        assert park(settings, wrong)["changed"]
        wait_until(lambda: drained(outbox.dsn), "everything but the rows for the wrong topic")
    assert_exactly_once(outbox, watcher)
