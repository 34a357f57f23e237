"""Headers with names that the protocol forbids: every service reads such records, and the records beside them."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from typer.testing import CliRunner

from devstack.kafka import KafkaServer
from devstack.topics import create_topics
from publisher.cli import app
from service.kafka.record_headers import UNREADABLE, headers_of
from service.settings import Settings
from tests.support.console import console_of
from tests.support.json_documents import json_document
from tests.support.outbox.audits import counted, run_audit
from tests.support.outbox.batches import Outbox, read_offsets, simple
from tests.support.outbox.deliveries import deliver
from tests.support.paths import ROOT
from tests.support.processes.environment import variables_of
from tests.support.servers.raw_producer import RawRecord, produce

ODD = [
    (b"\xff\xfe", b"1"),
    (b"type\0x", b"cut off"),
    (b"caf\xe9", None),
    (b"", b"no name"),
    (b"type", b"end"),
    ("schlüssel".encode(), b""),
    (b"\xed\xa0\x80", b"half of a pair"),
    (b"type", None),
]
READ = [
    (UNREADABLE, b"1"),
    ("type", b"cut off"),
    (UNREADABLE, None),
    ("", b"no name"),
    ("type", b"end"),
    ("schlüssel", b""),
    (UNREADABLE, b"half of a pair"),
    ("type", None),
]
# Python specialises a call after some repetitions; from then on nothing checks what it returns.
MANY = 300


def test_names_that_are_not_utf_8_or_have_a_nul(kafka: KafkaServer, topic_prefix: str) -> None:
    topic = f"{topic_prefix}odd"
    create_topics(kafka.bootstrap_servers, {topic: (1, {})})
    produce(kafka.bootstrap_servers, topic, 0, [RawRecord(b"v", headers=ODD)] * MANY + [RawRecord(b"v")])
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": f"{topic_prefix}odd"})
    found: list[Any] = []
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        while len(found) <= MANY:
            found += [headers_of(message) for message in consumer.consume(MANY, 30)]
    finally:
        consumer.close()
    assert found == [READ] * MANY + [[]]


@pytest.fixture
def visited(outbox: Outbox, settings: Settings) -> Outbox:
    """An outbox whose output topic has somebody else's records, and one that copies an output's id."""
    outbox.batch(simple(1, keys=5))
    deliver(settings)
    read_offsets(outbox.dsn)
    foreign = [RawRecord(b"v", headers=ODD)] * MANY
    for partition in range(3):
        produce(settings.kafka.bootstrap_servers, outbox.topic, partition, foreign)
    return outbox


def test_an_audit_counts_such_records_as_somebody_elses(
    visited: Outbox, settings: Settings, tmp_path: Path
) -> None:
    # In a process of its own: a crash there is an exit code here.
    done = subprocess.run(
        [sys.executable, "-m", "publisher", "audit", "--kafka", "--json"],
        env={**os.environ, **variables_of(settings)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert counted(run_audit(settings, tmp_path, kafka=True), "foreign_records") == 3 * MANY


def test_such_a_record_is_located(visited: Outbox, settings: Settings) -> None:
    for offset in range(100, 120):
        place = f"{visited.topic}/0/{offset}"
        shown = CliRunner(env=variables_of(settings)).invoke(app, ["locate", place, "--json"])
        assert shown.exit_code == 1, shown.output  # nothing of this outbox is there
        assert json_document(shown.stdout)["record"]["outbox_id"] is None


def test_the_consoles_search_reads_such_records_and_those_beside_them(
    visited: Outbox, settings: Settings
) -> None:
    with console_of(settings) as console:
        for offset in range(100, 120):
            page = console.shown(f"/search?q={visited.topic}/0/{offset}")
            assert "nothing was found" in page
            assert "Kafka was not read" not in page
            assert "no committed record" not in page
        found = {console.get(f"/search?q={visited.topic}/0/{n}").headers.get("location") for n in range(5)}
    assert found - {None} <= {f"/session?key={key}" for key in simple(1, keys=5)}
    assert found - {None}


def test_the_outputs_beside_such_records_are_found(visited: Outbox, settings: Settings) -> None:
    for _, _, outbox_id in visited.written:
        shown = CliRunner(env=variables_of(settings)).invoke(app, ["locate", outbox_id])
        assert shown.exit_code == 0, shown.output
        assert "offset" in shown.output
