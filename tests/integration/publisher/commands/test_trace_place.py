"""`publisher trace` leads from an outbox-id to a record in Kafka, and from a record back to its session."""

import uuid
from typing import Any

from typer.testing import CliRunner, Result

from publisher.cli import app
from service.errors import SettingsError
from service.settings import Settings
from tests.support.json_documents import json_document
from tests.support.outbox.batches import TOPIC_ID, Outbox, Session, read_offsets, simple
from tests.support.outbox.deliveries import deliver
from tests.support.outbox.replays import replayed
from tests.support.processes.environment import variables_of
from tests.support.queries import query


def trace(settings: Settings, place: str, *arguments: str) -> Result:
    """`publisher trace` in this process."""
    return CliRunner(env=variables_of(settings)).invoke(app, ["trace", place, *arguments])


def traced(settings: Settings, place: str) -> Any:
    return json_document(trace(settings, place, "--json").stdout)


def place_of(copy: dict[str, Any]) -> str:
    return f"{copy['topic']}/{copy['partition']}/{copy['offset']}"


def test_an_outbox_id_leads_to_its_record_and_the_record_back(outbox: Outbox, settings: Settings) -> None:
    for number in range(1, 8):
        outbox.batch(simple(number, keys=10))
    deliver(settings)
    read_offsets(outbox.dsn)
    wanted = f"{TOPIC_ID}/0/500399/1"
    (output,) = traced(settings, wanted)["outputs"]
    assert (output["session_key"], output["batch_id"], output["state"]) == ("k0003", 5, "delivered")
    (copy,) = output["copies"]
    back = traced(settings, place_of(copy))
    assert [each["outbox_id"] for each in back["outputs"]] == [wanted]
    assert back["record"]["key"] == "k0003"
    shown = trace(settings, wanted)
    assert shown.exit_code == 0
    assert "session key k0003, batch 5: sent by delivery" in shown.stdout
    assert f"partition {copy['partition']} offset {copy['offset']}" in shown.stdout
    assert f"outbox-id {wanted}" in trace(settings, place_of(copy)).stdout


def test_every_output_of_every_batch_is_traced(outbox: Outbox, settings: Settings) -> None:
    """The search goes by halves: none of the batches may be its blind spot."""
    for number in range(1, 14):
        outbox.batch(simple(number, keys=2, events=1))
    deliver(settings)
    read_offsets(outbox.dsn)
    for _, _, outbox_id in outbox.written:
        (output,) = traced(settings, outbox_id)["outputs"]
        assert [copy["outbox_id"] for copy in output["copies"]] == [outbox_id]


def test_a_replayed_record_names_its_replay_and_each_revision_its_own(
    outbox: Outbox, settings: Settings
) -> None:
    outbox.batch({"wanted": [Session([b"1"], 100_001)]})
    outbox.batch({"wanted": [Session([b"2"], 100_001)]}, revision=1)
    deliver(settings)
    read_offsets(outbox.dsn)
    # As after a restore: another generation reads the same offsets again.
    query(
        outbox.dsn,
        "INSERT INTO outbox.generation (generation, start_offsets, topics, reason, policy, assembly, run_id, revision)"
        " SELECT 2, start_offsets, topics, 'requested', 'reissue', '{}', %s, 1 FROM outbox.generation",
        uuid.uuid4(),
    )
    query(
        outbox.dsn,
        "UPDATE outbox.batch SET generation = 2, start_offsets = b.start_offsets, end_offsets = b.end_offsets"
        " FROM outbox.batch b WHERE b.batch_id = 1 AND batch.batch_id = 2",
    )
    outputs = traced(settings, f"{TOPIC_ID}/0/100001/0")["outputs"]
    assert [(each["revision"], each["batch_id"]) for each in outputs] == [(0, 1), (1, 2)]
    replay = replayed(settings, "start", "--all", "--yes")
    (copy,) = outputs[1]["copies"]
    again = place_of(copy | {"offset": copy["offset"] + 3})
    shown = trace(settings, again).stdout
    assert f"replay {replay['replay_uuid']}" in shown, shown


def test_a_position_of_the_input_names_the_sessions_around_it(outbox: Outbox, settings: Settings) -> None:
    outbox.batch({"a": [Session([b"1"], 100_010)], "b": [Session([b"1"], 100_020)]})
    read_offsets(outbox.dsn)
    query(outbox.dsn, "UPDATE outbox.session_output SET session_starts = '{100000}' WHERE session_key = 'a'")
    found = traced(settings, "session-events/0/100010")
    assert [(each["session_key"], each["exact"]) for each in found["sessions"]] == [("a", True)]
    between = traced(settings, f"{TOPIC_ID}/0/100005")
    assert [(each["session_key"], each["exact"]) for each in between["sessions"]] == [("a", False)]
    assert "perhaps: sessions overlap there" in trace(settings, "session-events/0/100005").stdout


def test_what_is_not_there_is_said(outbox: Outbox, settings: Settings) -> None:
    outbox.batch(simple(1, keys=1))
    read_offsets(outbox.dsn)
    nothing = trace(settings, f"{TOPIC_ID}/0/7/0")
    assert nothing.exit_code == 1
    assert "has no output" in nothing.stdout
    nowhere = trace(settings, f"{outbox.topic}/0/0")
    assert nowhere.exit_code == 1
    assert "no committed record" in nowhere.stdout
    neither = trace(settings, "nonsense")
    assert neither.exit_code == 1
    assert "no output of session key 'nonsense'" in neither.stdout


def test_a_key_that_looks_like_a_place_is_a_key(outbox: Outbox, settings: Settings) -> None:
    outbox.batch({f"{outbox.topic}/0/0": [Session([b"1"], 100_001)]})
    document = traced(settings, f"{outbox.topic}/0/0")
    assert (document["meant"], len(document["outputs"])) == ("session_key", 1)


def test_the_former_names_answer_as_they_did(outbox: Outbox, settings: Settings) -> None:
    outbox.batch({"wanted": [Session([b"1"], 100_001)]})
    deliver(settings)
    read_offsets(outbox.dsn)
    former = CliRunner(env=variables_of(settings))
    (by_key,) = json_document(former.invoke(app, ["find", "wanted", "--json"]).stdout)
    (by_id,) = json_document(former.invoke(app, ["locate", f"{TOPIC_ID}/0/100001/0", "--json"]).stdout)
    assert by_key == by_id
    at = json_document(former.invoke(app, ["locate", place_of(by_key["copies"][0]), "--json"]).stdout)
    assert set(at) == {"record", "unread", "outputs", "sessions", "letters"}
    assert isinstance(former.invoke(app, ["locate", "nonsense"]).exception, SettingsError)
