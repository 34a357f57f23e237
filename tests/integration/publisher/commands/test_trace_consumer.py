"""`publisher trace --consumer` follows an output to the rows of its consumers."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

from devstack.kafka import KafkaServer
from outbox_consumer import Output, retry
from publisher.cli import app
from service.settings import Settings
from tests.support.consumer.consuming import consume_there
from tests.support.outbox.batches import TOPIC_ID, Outbox, Session, read_offsets
from tests.support.outbox.deliveries import deliver
from tests.support.processes.environment import variables_of


def trace(settings: Settings, *arguments: str) -> Result:
    """`publisher trace` in this process."""
    return CliRunner(env=variables_of(settings)).invoke(app, ["trace", *arguments])


def refuse_bad(connection: Any, output: Output) -> None:
    if output.value == b"bad":
        raise ValueError("no such customer")


def test_the_story_goes_on_to_the_rows_of_consumers(
    outbox: Outbox, settings: Settings, kafka: KafkaServer, tmp_path: Path
) -> None:
    path = tmp_path / "consumer.db"
    dsn = f"sqlite:///{path}"
    outbox.batch({"wanted": [Session([b"good", b"bad"], 100_001)]})
    deliver(settings)
    group = f"{outbox.topic}-group"

    def consume() -> None:
        with closing(sqlite3.connect(path)) as connection:
            consume_there(
                connection, kafka.bootstrap_servers, group, outbox.topic, apply=refuse_bad, attempts=1
            )

    consume()
    shown = trace(settings, "wanted", "--consumer", dsn)
    assert shown.exit_code == 0
    words = " ".join(shown.stdout.split())
    assert f"consumer {group}: consumed at 2" in words
    assert f"consumer {group}: set aside at 2" in words
    assert "ValueError: no such customer, from" in words
    outbox.batch({"wanted": [Session([b"mended", b"as well"], 100_001)]}, revision=1)
    deliver(settings)
    read_offsets(outbox.dsn)
    good = f"{TOPIC_ID}/0/100001/0"
    by_id = json.loads(trace(settings, good, "--consumer", dsn, "--json").stdout)["outputs"]
    # The newer revision is delivered, and not consumed yet.
    assert [(each["revision"], [row["revision"] for row in each["consumed"]]) for each in by_id] == [
        (0, [0]),
        (1, [0]),
    ]
    assert "has revision 0 only" in trace(settings, good, "--consumer", dsn).stdout
    consume()
    assert "superseded by revision 1" in trace(settings, good, "--consumer", dsn).stdout
    (copy,) = by_id[0]["copies"]
    place = f"{copy['topic']}/{copy['partition']}/{copy['offset']}"
    assert "superseded by revision 1" in trace(settings, place, "--consumer", dsn).stdout
    by_place = json.loads(trace(settings, place, "--consumer", dsn, "--json").stdout)["outputs"]
    ((row,),) = [each["consumed"] for each in by_place]
    assert row["consumer"] == group
    assert row["next_offset"] > row["offset"] > copy["offset"]
    with closing(sqlite3.connect(path)) as connection:
        for output in retry(connection, group):
            with output:
                pass
    outbox.batch({"later": [Session([b"x"], 100_002)]})
    deliver(settings)
    assert "no consumer has it (yet)" in trace(settings, "later", "--consumer", dsn).stdout
    assert "consumed" not in json.loads(trace(settings, "later", "--json").stdout)["outputs"][0]


def test_a_database_without_the_tables_is_refused(outbox: Outbox, settings: Settings) -> None:
    outbox.batch({"wanted": [Session([b"1"], 100_001)]})
    told = trace(settings, "wanted", "--consumer", outbox.dsn)
    assert told.exit_code != 0
    assert "without the tables of `outbox_consumer`" in f"{told.exception}"
