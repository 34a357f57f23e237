"""`publisher trace` of a session key names the exact place of each output."""

from typing import Any

from confluent_kafka import Consumer, TopicPartition
from typer.testing import CliRunner, Result

from publisher.cli import app
from service.kafka.record_headers import headers_of
from service.settings import Settings
from tests.support.json_documents import json_document
from tests.support.outbox.batches import TOPIC_ID, Outbox, Session, simple
from tests.support.outbox.deliveries import deliver
from tests.support.outbox.replays import replayed
from tests.support.processes.environment import variables_of
from tests.support.queries import query


def trace(settings: Settings, *arguments: str) -> Result:
    """`publisher trace` in this process."""
    return CliRunner(env=variables_of(settings)).invoke(app, ["trace", *arguments])


def found(settings: Settings, *arguments: str) -> list[dict[str, Any]]:
    outputs: list[dict[str, Any]] = json_document(trace(settings, *arguments, "--json").stdout)["outputs"]
    return outputs


def outbox_id_at(bootstrap: str, copy: dict[str, Any]) -> bytes | None:
    """The header outbox-id of the record at that place."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "test", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(copy["topic"], copy["partition"], copy["offset"])])
        message = consumer.poll(30)
        assert message is not None
        assert message.offset() == copy["offset"]
        return dict(headers_of(message)).get("outbox-id")
    finally:
        consumer.close()


def test_each_output_is_found_at_its_offset(outbox: Outbox, settings: Settings) -> None:
    outbox.batch(simple(1, keys=20))
    outbox.batch({"wanted": [Session([b"1", b"2"], 90_001)], "other": [Session([b"3"], 90_002)]})
    deliver(settings)
    outbox.batch({"wanted": [Session([b"4"], 90_003)]})
    outputs = found(settings, "wanted")
    assert [(output["outbox_id"], output["state"], len(output["copies"])) for output in outputs] == [
        (f"{TOPIC_ID}/0/90001/0", "delivered", 1),
        (f"{TOPIC_ID}/0/90001/1", "delivered", 1),
        (f"{TOPIC_ID}/0/90003/0", "pending", 0),
    ]
    for output in outputs[:2]:
        (copy,) = output["copies"]
        assert outbox_id_at(settings.kafka.bootstrap_servers, copy) == output["outbox_id"].encode()
    shown = trace(settings, "wanted")
    (copy,) = outputs[0]["copies"]
    assert f"{outbox.topic} partition {copy['partition']} offset {copy['offset']}\n" in shown.stdout
    assert shown.exit_code == 0
    assert trace(settings, "wanted", "--topic", "none").exit_code == 1
    assert trace(settings, "nobody").exit_code == 1


def test_a_scan_finds_replayed_copies_and_what_has_no_record_of_its_delivery(
    outbox: Outbox, settings: Settings
) -> None:
    outbox.batch({"wanted": [Session([b"1"], 90_001)]})
    deliver(settings)
    replay = replayed(settings, "start", "--all", "--yes")
    query(outbox.dsn, "UPDATE outbox.delivery SET kafka_offsets = NULL")
    assert "offsets are not recorded: --scan looks" in trace(settings, "wanted").stdout
    ((output),) = found(settings, "wanted", "--scan")
    assert [copy["replay"] for copy in output["copies"]] == [None, replay["replay_uuid"]]
    shown = trace(settings, "wanted", "--scan").stdout
    assert f", replay {replay['replay_uuid']}" in shown


def test_a_revision_that_kafka_lacks_is_not_taken_for_the_one_that_it_has(
    outbox: Outbox, settings: Settings
) -> None:
    outbox.batch({"wanted": [Session([b"1"], 90_001)]})
    deliver(settings)
    outbox.batch({"wanted": [Session([b"2"], 90_001)]}, revision=1)
    deliver(settings)
    assert [[copy["revision"] for copy in output["copies"]] for output in found(settings, "wanted")] == [
        [0],
        [1],
    ]
    assert trace(settings, "wanted").exit_code == 0
    # Its record is looked for where revision 0 lies.
    query(
        outbox.dsn,
        "UPDATE outbox.delivery d SET kafka_offsets = f.kafka_offsets FROM outbox.delivery f"
        " WHERE d.kafka_offsets IS NOT NULL AND f.seq = 1 AND f.lane = d.lane AND f.kafka_offsets IS NOT NULL",
    )
    assert trace(settings, "wanted").exit_code == 1
    assert "not in Kafka (any more)" in trace(settings, "wanted").stdout


def test_a_topic_that_was_deleted_is_said_to_have_nothing(outbox: Outbox, settings: Settings) -> None:
    outbox.batch({"wanted": [Session([b"1"], 90_001)]})
    deliver(settings)
    query(outbox.dsn, "UPDATE outbox.session_output SET topics = ARRAY['never-there']")
    query(
        outbox.dsn,
        "UPDATE outbox.delivery SET kafka_offsets = jsonb_build_object('never-there', jsonb_build_object('0', '[0, 3]'::jsonb))"
        " WHERE kafka_offsets IS NOT NULL",
    )
    result = trace(settings, "wanted")
    assert result.exit_code == 1
    assert "not in Kafka (any more)" in result.stdout
