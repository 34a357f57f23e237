"""`publisher erase` takes all out that is kept of a session key, and everything that looks at the outbox still adds up."""

import base64
import json
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from unittest import mock
from urllib.parse import quote

import orjson
import psycopg
import pytest

from contract.session_keys import MAX_KEY_BYTES
from devstack.kafka import KafkaServer
from devstack.topics import create_topics
from service.errors import FencedError, RefusedError, SettingsError
from service.settings import Settings
from spark_job.sessions.assembler import assemble
from spark_job.sessions.settings import AssemblySettings
from spark_job.sessions.state.open_state import OpenState
from tests.support.console import console_of
from tests.support.outbox.audits import counted, examples, failed, publisher_command, run_audit
from tests.support.outbox.batches import TOPIC_ID, Outbox, Session, read_offsets, simple
from tests.support.outbox.deliveries import assert_exactly_once, deliver
from tests.support.outbox.replays import replay, replayed, seen_of
from tests.support.outbox.restoring import resume
from tests.support.processes import erasing
from tests.support.processes.erasing import appears, erase, erased, key_hash, whole_dump
from tests.support.processes.publishers import RelayThread, settings_for
from tests.support.queries import query
from tests.support.reading import read_to_end
from tests.support.reference.assembled import table
from tests.support.reference.model import Record
from tests.support.reference.tombstones import tombstones
from tests.support.servers.input_topic import InputTopic
from tests.support.watching import Watcher

MARKER = b"marker-of-the-person"
REMEMBERS = "remembers the key, of a session over a limit, or of a partition's last record if an earlier version wrote it"


def person(
    batch: int, outbox: Outbox, key: str = "person-4711", *, end: int = 0
) -> dict[str, Sequence[Session]]:
    """A session with the marker in value, key and headers."""
    return {
        key: [
            Session(
                values=[MARKER + b"-value", None],
                end=end or batch * 100_000 + 99_999,
                keys=[MARKER + b"-key", None],
                headers=[[["own", MARKER.decode() + "-header"]], None],
            )
        ]
    }


def letter_of(dsn: str, key: str | None, value: bytes) -> int:
    """A dead letter with an event."""
    ((number,),) = query(
        dsn,
        "INSERT INTO outbox.dead_letter (topic_id, topic, partition, first_offset, last_offset, closing_offset, reason, generation,"
        " batch_id, session_key, detail, event_count, event_offsets, event_times_ms, event_values)"
        " SELECT %s, 'session-events', 0, o, o, o, %s, 1, 1, %s, 'a test', 1, ARRAY[o], ARRAY[o], ARRAY[%s::bytea]"
        " FROM (SELECT coalesce(max(first_offset), 0) + 1 AS o FROM outbox.dead_letter) n RETURNING dead_letter_id",
        TOPIC_ID,
        "malformed" if key is None else "no_start",
        key,
        value,
    )
    return int(number)


@pytest.mark.guarantee(181)
def test_nothing_of_a_key_is_left_and_both_audits_say_erased(
    outbox: Outbox, settings: Settings, watcher: Watcher, tmp_path: Path
) -> None:
    small = settings_for(outbox.dsn, settings.kafka.bootstrap_servers, transaction_sessions=1)
    for batch in (1, 2, 3):
        outbox.batch({**simple(batch, 5), **person(batch, outbox)})
    letter_of(outbox.dsn, "person-4711", MARKER)
    letter_of(outbox.dsn, "somebody else", b"theirs")
    deliver(small)
    ((cursors,),) = query(
        outbox.dsn, "SELECT count(*) FROM outbox.delivery WHERE 'person-4711' IN (after_key, to_key)"
    )
    assert cursors > 0
    cache = tmp_path / "cache"
    ((uuid,),) = query(outbox.dsn, "SELECT outbox_uuid FROM outbox.identity")
    folder = cache / str(uuid) / "topic-0"
    folder.parent.mkdir(mode=0o700, parents=True)
    folder.mkdir(mode=0o700)
    (folder / "a.events").write_bytes(MARKER)
    (folder / "b.sessions").write_bytes(MARKER)
    query(outbox.dsn, "ANALYZE")

    document = erased(small, "person-4711", cache=cache)

    (of_key,) = document["keys"]
    assert of_key == {
        "key_hash": key_hash(outbox.dsn, "person-4711"),
        "rows": 3,
        "sessions": 3,
        "archived_rows": 0,
        "letters": 1,
        "tombstones": 0,
        "left": [],
    }
    assert (document["cache_files"], document["cache_missing"]) == (2, None)
    assert [file for file in cache.rglob("*") if file.is_file()] == []
    dump = whole_dump(outbox.dsn)
    assert not appears(dump, MARKER)
    assert not appears(dump, b"person-4711")
    assert appears(dump, b"theirs")
    report = run_audit(small, tmp_path, kafka=True)
    assert failed(report) == {}
    assert counted(report, "records_of_erased_outputs") == 6
    assert counted(report, "outputs_found") == 45
    assert "3 rows of 3 sessions with 6 outputs, and 1 dead letters" in examples(report, "erased")
    assert query(outbox.dsn, "SELECT count(*) FROM outbox.audit_reconciliation") == [(0,)]
    assert_exactly_once(outbox, watcher)


@pytest.mark.guarantee(181)
def test_a_partition_that_was_detached_by_hand_is_named_until_it_is_attached_again(
    outbox: Outbox, settings: Settings
) -> None:
    outbox.batch({"person-4711": [Session([MARKER], 6)]})
    deliver(settings)
    table = "outbox.session_output_p00000000"
    ((bounds,),) = query(
        outbox.dsn, "SELECT pg_get_expr(relpartbound, oid) FROM pg_class WHERE oid = %s::regclass", table
    )
    query(outbox.dsn, f"ALTER TABLE outbox.session_output DETACH PARTITION {table}")
    for options in ((), ("--dry-run",)):
        (of_key,) = erased(settings, "person-4711", *options, code=1)["keys"]
        assert f"{table}, which was detached by hand" in of_key["left"][0]
    query(outbox.dsn, f"ALTER TABLE outbox.session_output ATTACH PARTITION {table} {bounds}")
    (of_key,) = erased(settings, "person-4711")["keys"]
    assert (of_key["rows"], of_key["left"]) == (1, [])
    assert not appears(whole_dump(outbox.dsn), MARKER)


def test_it_is_erased_once_and_the_second_time_there_is_nothing(outbox: Outbox, settings: Settings) -> None:
    outbox.batch({**simple(1, 2), **person(1, outbox)})
    deliver(settings)
    assert erased(settings, "person-4711")["keys"][0]["rows"] == 1
    assert erased(settings, "person-4711")["keys"][0]["rows"] == 0
    assert erased(settings, "nobody")["keys"][0]["rows"] == 0


def test_a_cache_that_is_elsewhere_is_named(outbox: Outbox, settings: Settings, tmp_path: Path) -> None:
    ((uuid,),) = query(outbox.dsn, "SELECT outbox_uuid FROM outbox.identity")
    there = tmp_path / "none" / str(uuid)
    assert erased(settings, "nobody", cache=there.parent)["cache_missing"] == str(there)


def test_a_row_that_is_not_delivered_stays_and_goes_out_and_then_goes(
    outbox: Outbox, settings: Settings, watcher: Watcher, tmp_path: Path
) -> None:
    outbox.batch(person(1, outbox))
    deliver(settings)
    outbox.batch({**simple(2, 3), **person(2, outbox)})
    (of_key,) = erased(settings, "person-4711", code=1)["keys"]
    assert of_key["rows"] == 1
    assert [line[: line.index(" or ")] for line in of_key["left"]] == [
        "the row of batch 2 is not delivered yet,"
    ]
    deliver(settings)
    assert_exactly_once(outbox, watcher)
    assert erased(settings, "person-4711")["keys"][0]["rows"] == 1
    assert failed(run_audit(settings, tmp_path, kafka=True)) == {}


def test_it_waits_for_the_delivery(outbox: Outbox, settings: Settings) -> None:
    outbox.batch(person(1, outbox))
    with RelayThread(settings):
        result = erase(settings, "--wait", "60", "person-4711")
    assert result.exit_code == 0, result.output
    assert not appears(whole_dump(outbox.dsn), b"person-4711")


@pytest.mark.guarantee(182)
def test_lanes_replays_and_resumes_go_over_a_batch_without_what_was_erased(
    outbox: Outbox, settings: Settings, watcher: Watcher, tmp_path: Path
) -> None:
    small = settings_for(outbox.dsn, settings.kafka.bootstrap_servers, transaction_sessions=1)
    for batch in (1, 2):
        outbox.batch({**simple(batch, 4), **person(batch, outbox)})
    deliver(small)
    assert erased(small, "person-4711", "k0001")["keys"][1]["rows"] == 2

    document = replayed(small, "start", "--all", "--yes")

    watcher.wait_until_all_read()
    sent = seen_of(watcher, document["replay_uuid"])
    assert len(sent) == 18
    assert not [event for event in sent if event[1] is None or MARKER in event[1] or event[0] == b"k0001"]
    resume(small, "--from", "beginning", "--yes")
    outbox.batch({**simple(3, 4), **person(3, outbox)})
    deliver(small)
    watcher.wait_until_all_read()
    assert len([event for event in watcher.seen if event.value and MARKER in event.value]) == 3
    report = run_audit(small, tmp_path, kafka=True)
    assert failed(report) == {}
    assert counted(report, "records_sent_again_by_resume") == 18
    assert erased(small, "person-4711", "k0003", "k0000")["keys"][0]["rows"] == 3
    report = run_audit(small, tmp_path, kafka=True)
    assert failed(report) == {}
    assert query(outbox.dsn, "SELECT count(*) FROM outbox.audit_reconciliation") == [(0,)]


@pytest.mark.guarantee(182)
def test_a_parked_row_and_its_requeued_copy_go(outbox: Outbox, settings: Settings, tmp_path: Path) -> None:
    no_such_partition = Session([MARKER], 7, partitions=[99])
    outbox.batch({**simple(1, 3), "person-4711": [no_such_partition]})
    outbox.batch({**simple(2, 3), "person-4711": [Session([MARKER], 8, partitions=[99])]})
    deliver(settings)
    command = publisher_command(settings, "parked", "requeue", "1/person-4711", "--yes")
    assert command.returncode == 0, command.stderr
    deliver(settings)
    assert erased(settings, "person-4711")["keys"][0]["rows"] == 3
    assert not appears(whole_dump(outbox.dsn), b"person-4711")
    assert failed(run_audit(settings, tmp_path, kafka=True)) == {}
    outbox.batch(simple(3, 3))
    deliver(settings)
    assert failed(run_audit(settings, tmp_path, kafka=True)) == {}


def test_a_replay_that_stands_at_the_row_is_named_and_a_finished_one_forgets_the_key(
    outbox: Outbox, settings: Settings
) -> None:
    outbox.batch({**simple(1, 2), **person(1, outbox)})
    deliver(settings)
    replayed(settings, "start", "--key", "person-4711", "--yes")
    query(
        outbox.dsn,
        "UPDATE outbox.replay SET state = 'paused', cursor_batch = 1, cursor_key = 'person-4711', lease_holder = NULL, lease_until = NULL,"
        " lease_backend_pid = NULL",
    )
    (of_key,) = erased(settings, "person-4711", code=1)["keys"]
    assert [line[: line.index(":")] for line in of_key["left"]] == ["replay 1 needs the row of batch 1"]
    assert erased(settings, "person-4711", code=1)["keys"][0]["left"] == of_key["left"]
    assert replay(settings, "cancel", "1").exit_code == 0
    erased(settings, "person-4711")
    assert not appears(whole_dump(outbox.dsn), b"person-4711")


def test_samples_that_a_lock_holds_are_named_and_the_next_command_reaches_them(
    outbox: Outbox, settings: Settings
) -> None:
    outbox.batch({**simple(1, 2), **person(1, outbox)})
    deliver(settings)
    query(outbox.dsn, "ANALYZE")
    with psycopg.connect(outbox.dsn) as other:
        other.execute("LOCK TABLE outbox.session_output_p00000000 IN SHARE UPDATE EXCLUSIVE MODE")
        result = erase(settings, "person-4711", lock_timeout_ms=500)
        assert result.exit_code == 1, result.output
        assert "the planner's samples of keys in session_output_p00000000" in " ".join(result.output.split())
    assert appears(whole_dump(outbox.dsn), b"person-4711")
    assert erased(settings, "person-4711")["keys"][0]["rows"] == 0
    assert not appears(whole_dump(outbox.dsn), b"person-4711")


def test_a_process_that_was_away_may_record_its_last_transaction_after_the_row_was_erased(
    outbox: Outbox, settings: Settings
) -> None:
    outbox.batch({**simple(1, 2), **person(1, outbox)})
    deliver(settings)
    replayed(settings, "start", "--all", "--yes")
    erased(settings, "person-4711")
    query(
        outbox.dsn,
        "UPDATE outbox.replay SET state = 'paused', cursor_batch = 1, cursor_key = 'person-4711', lease_holder = NULL, lease_until = NULL,"
        " lease_backend_pid = NULL",
    )
    (of_key,) = erased(settings, "person-4711", code=1)["keys"]
    assert of_key["left"] == [
        "replay 1 ended its last transaction at the key: continue the replay or cancel it"
    ]
    assert replay(settings, "cancel", "1").exit_code == 0
    erased(settings, "person-4711")
    assert not appears(whole_dump(outbox.dsn), b"person-4711")


def test_sessions_that_are_open_may_be_the_keys(outbox: Outbox, settings: Settings) -> None:
    open_state = {TOPIC_ID: {"0": {"safe": 5, "sessions": 1, "events": 2, "bytes": 10, "digest": "d"}}}
    batch = outbox.batch(simple(1, 1))
    deliver(settings)
    query(
        outbox.dsn,
        "UPDATE outbox.batch SET end_offsets = %s, open_state = %s WHERE batch_id = %s",
        json.dumps({TOPIC_ID: {"0": 10}}),
        json.dumps(open_state),
        batch,
    )
    (of_key,) = erased(settings, "person-4711", code=1)["keys"]
    assert f"still open in 1 input partitions ({TOPIC_ID}/0)" in of_key["left"][0]


def test_letters_without_a_key_are_counted_and_go_by_their_place_once_they_are_discarded(
    outbox: Outbox, settings: Settings
) -> None:
    outbox.batch(simple(1, 1))
    deliver(settings)
    number = letter_of(outbox.dsn, None, b'{"session_key": "person-4711", ' + MARKER)
    other = letter_of(outbox.dsn, None, b"not theirs")
    assert erased(settings, "person-4711")["letters_without_key"] == 2
    letter = ("--letter", "session-events/0/1")
    (left,) = erased(settings, *letter, code=1)["letters"]
    assert (left["letters"], left["left"]) == (
        0,
        "it is open: `spark-job dead-letters discard ID` first",
    )
    query(outbox.dsn, "UPDATE outbox.dead_letter SET state = 'discarded' WHERE dead_letter_id = %s", number)
    foreseen = erased(settings, "--dry-run", *letter)["letters"]
    document = erased(settings, "person-4711", *letter)
    assert document["letters"] == foreseen == [{"place": "session-events/0/1", "letters": 1, "left": None}]
    assert query(outbox.dsn, "SELECT dead_letter_id FROM outbox.dead_letter") == [(other,)]
    assert erased(settings, *letter)["letters"][0]["letters"] == 0
    assert query(outbox.dsn, "SELECT result FROM outbox.operation") == [({"letters": 1},)]


@pytest.mark.parametrize(
    "place", ["1", "t/1", "t/1/x", "/1/2", "t/-1/2", "t/1/2 ", f"t/{2**31}/1", f"t/1/{2**63}", "t/²/1"]
)
def test_what_is_no_place_of_a_letter_is_refused(outbox: Outbox, settings: Settings, place: str) -> None:
    assert isinstance(erase(settings, "--letter", place).exception, SettingsError)


def open_state(remembered: str) -> str:
    """`outbox.batch.open_state` of one partition without open sessions. `remembered`: keys of too large ones, in base64."""
    partition = {"safe": 0, "sessions": 0, "events": 0, "bytes": 0, "digest": "d", "tombstones": remembered}
    return json.dumps({TOPIC_ID: {"0": partition}})


def test_a_key_that_is_a_part_of_another_has_nothing_left(outbox: Outbox, settings: Settings) -> None:
    """What is kept of `user-123` is no reason to say that something is left of `user-12`."""
    state = open_state(base64.b64encode(tombstones(**{"user-123": 5, "an-user-12": 7})).decode())
    outbox.batch({**simple(1, 2), **person(1, outbox, "user-123")})
    deliver(settings)
    query(outbox.dsn, "UPDATE outbox.batch SET open_state = %s", state)
    assert erased(settings, "user-12")["keys"][0]["left"] == []
    (of_key,) = erased(settings, "user-123", code=1)["keys"]
    assert of_key["left"] == [f"the current position {REMEMBERS}"]


def test_no_position_holds_up_the_erasure_of_who_sent_a_partitions_last_record(
    outbox: Outbox, settings: Settings
) -> None:
    """Also at the end of an earlier generation, which nothing removes: but what an earlier version wrote is named."""
    rules = AssemblySettings(timeout_ms=1000, grace_ms=100, max_events=1, max_bytes=2000)
    kinds = [("too-large", "start"), ("too-large", "entry"), ("person-4711", "start"), ("person-4711", "end")]
    values = [orjson.dumps({"event_type": f"{kind}_event", "session_key": key}) for key, kind in kinds]
    log = [
        Record(0, at, at, key, value) for at, ((key, _), value) in enumerate(zip(kinds, values, strict=True))
    ]
    state = assemble(OpenState.empty(), table(log, rules), rules).state
    assert state.last is not None
    assert state.last.offset == 3
    outbox.batch({**simple(1, 2), **person(1, outbox)})
    deliver(settings)
    query(
        outbox.dsn,
        "INSERT INTO outbox.generation (generation, start_offsets, topics, reason, policy, assembly, run_id, from_generation)"
        " VALUES (2, '{}', '{}', 'changed_assembly', 'skip', '{}', gen_random_uuid(), 1)",
    )
    older = replace(state, last=replace(state.last, key_hash="person-4711"))
    for written, key, left in (
        (state, "person-4711", []),
        (state, "too-large", [f"the last position of generation 1 {REMEMBERS}"]),
        (older, "person-4711", [f"the last position of generation 1 {REMEMBERS}"]),
    ):
        remembered = open_state(base64.b64encode(written.remembered).decode())
        query(outbox.dsn, "UPDATE outbox.batch SET open_state = %s", remembered)
        assert erased(settings, key, code=int(bool(left)))["keys"][0]["left"] == left


def test_too_large_sessions_of_the_past_are_forgotten_and_a_savepoint_with_one_is_named(
    outbox: Outbox, settings: Settings
) -> None:
    for batch in (1, 2):
        outbox.batch(simple(batch, 1))
    deliver(settings)
    remembered = base64.b64encode(tombstones(**{"person-4711": 5})).decode()
    state = open_state(remembered)
    query(outbox.dsn, "UPDATE outbox.batch SET open_state = %s WHERE batch_id = 1", state)
    query(
        outbox.dsn,
        "INSERT INTO outbox.savepoint (name, generation, end_offsets, open_state, lineage, assembly, topics, revision)"
        " VALUES ('monday', 1, '{}', %s, '[]', '{}', '{}', 0)",
        state,
    )
    (of_key,) = erased(settings, "person-4711", code=1)["keys"]
    assert of_key["left"] == [
        f"savepoint monday {REMEMBERS}: `spark-job savepoint delete monday`, if it is not needed"
    ]
    query(outbox.dsn, "UPDATE outbox.savepoint SET deleted_at = now()")
    assert erased(settings, "person-4711")["keys"][0]["left"] == []
    assert not appears(whole_dump(outbox.dsn), remembered.encode())


@pytest.mark.parametrize(
    "key",
    [
        "o'brien\"; DROP TABLE x; --",
        "ключ 🗝 \u202e",
        "-k",
        "%s %(a)s",
        "\\x00\n\t",
        "k" * MAX_KEY_BYTES,
        " ",
        "1",
    ],
    ids=repr,
)
def test_any_key_can_be_erased(outbox: Outbox, settings: Settings, tmp_path: Path, key: str) -> None:
    outbox.batch({**simple(1, 3), **person(1, outbox, key)})
    deliver(settings)
    assert erased(settings, "--", key)["keys"][0]["rows"] == 1
    assert query(outbox.dsn, "SELECT count(*) FROM outbox.session_output WHERE session_key = %s", key) == [
        (0,)
    ]
    assert failed(run_audit(settings, tmp_path)) == {}


@pytest.mark.parametrize(
    ("key", "says"), [("a\0b", "NUL"), ("k" * (MAX_KEY_BYTES + 1), "1 to 1024 bytes"), ("", "no session key")]
)
def test_what_is_no_key_is_refused(outbox: Outbox, settings: Settings, key: str, says: str) -> None:
    result = erase(settings, "--", key)
    assert isinstance(result.exception, SettingsError)
    assert says in str(result.exception)


def test_a_key_with_a_thousand_sessions(outbox: Outbox, settings: Settings, tmp_path: Path) -> None:
    for batch in range(1, 11):
        outbox.batch(
            {
                **simple(batch, 2),
                "person-4711": [Session([MARKER], batch * 1_000_000 + 500 + n) for n in range(100)],
            }
        )
    deliver(settings)
    of_key = erased(settings, "person-4711")["keys"][0]
    assert (of_key["rows"], of_key["sessions"]) == (10, 1_000)
    report = run_audit(settings, tmp_path, kafka=True)
    assert failed(report) == {}
    assert counted(report, "records_of_erased_outputs") == 1_000


def test_a_dry_run_says_what_would_go_and_changes_nothing(outbox: Outbox, settings: Settings) -> None:
    outbox.batch({**simple(1, 2), **person(1, outbox)})
    deliver(settings)
    before = whole_dump(outbox.dsn)
    of_key = erased(settings, "person-4711", "--dry-run")["keys"][0]
    assert (of_key["rows"], of_key["sessions"], of_key["left"]) == (1, 1, [])
    assert appears(before, MARKER)
    assert query(outbox.dsn, "SELECT count(*) FROM outbox.erased") == [(0,)]


def test_what_stands_for_erased_rows_ends_with_their_batches_and_what_a_reissue_leaves_out_does_not(
    outbox: Outbox, settings: Settings
) -> None:
    outbox.batch({**simple(1, 2), **person(1, outbox)})
    read_offsets(outbox.dsn)
    deliver(settings)
    erased(settings, "person-4711")
    assert query(outbox.dsn, "SELECT outbox.prune_erased(0, 100)") == [(0,)]
    # As if retention had dropped the rows.
    query(
        outbox.dsn,
        "CREATE OR REPLACE FUNCTION outbox.retention_floor() RETURNS bigint LANGUAGE sql AS 'SELECT 2::bigint'",
    )
    assert query(outbox.dsn, "SELECT outbox.prune_erased(3600, 100)") == [(0,)]
    assert query(outbox.dsn, "SELECT outbox.prune_erased(0, 100)") == [(1,)]
    assert query(outbox.dsn, "SELECT encode(key_hash, 'hex'), partition, through FROM outbox.erased_key") == [
        (key_hash(outbox.dsn, "person-4711"), 0, 199_999)
    ]


def test_find_locate_and_the_console_say_erased(outbox: Outbox, settings: Settings) -> None:
    outbox.batch({**simple(1, 2), **person(1, outbox)})
    deliver(settings)
    erased(settings, "person-4711")
    found = publisher_command(settings, "find", "person-4711")
    assert found.returncode == 1
    assert "erased at" in found.stdout
    located = publisher_command(settings, "locate", f"{TOPIC_ID}/0/199999/0")
    assert "erased at" in located.stdout
    assert "batch 1, revision 0, 2 outputs" in located.stdout
    with console_of(settings) as console:
        page = console.get("/session?key=person-4711")
        assert (page.status, "were erased" in page.text) == (404, True)
        for sought in ("person-4711", quote(f"{TOPIC_ID}/0/199999/0", safe="")):
            assert "erased at" in console.shown(f"/search?q={sought}"), sought


def test_tombstones_end_the_keys_of_a_compacted_topic(
    outbox: Outbox, settings: Settings, kafka: KafkaServer, topic_prefix: str, tmp_path: Path
) -> None:
    name = f"{topic_prefix}compacted"
    create_topics(kafka.bootstrap_servers, {name: (3, {"cleanup.policy": "compact"})})
    outbox.batch(
        {
            **simple(1, 2),
            "person-4711": [
                Session(
                    [b"one", b"two", b"three"],
                    7,
                    topics=[name, name, outbox.topic],
                    keys=[b"output", None, None],
                )
            ],
        }
    )
    deliver(settings)
    refused = erase(settings, "person-4711", "--tombstones", outbox.topic)
    assert "is not compacted" in str(refused.exception)
    refused = erase(settings, "person-4711", "--tombstones", "no-such")
    assert "has never delivered to topic 'no-such'" in str(refused.exception)
    InputTopic(kafka.bootstrap_servers, name, 3).add_partitions(5)
    assert erased(settings, "person-4711", "--tombstones", name)["keys"][0]["tombstones"] == 10
    newest: dict[tuple[bytes | None, int | None], bytes | None] = {}
    for message in read_to_end(kafka.bootstrap_servers, name):
        newest[message.key(), message.partition()] = message.value()
    # In every partition: there were fewer when the values were written.
    assert newest == {(key, n): None for key in (b"output", b"person-4711") for n in range(5)}
    report = run_audit(settings, tmp_path, kafka=True)
    assert failed(report) == {}
    assert counted(report, "tombstones_of_erasure") == 10


def test_one_erasure_at_a_time_and_only_by_who_may(outbox: Outbox, settings: Settings) -> None:
    with psycopg.connect(outbox.dsn, autocommit=True) as other:
        other.execute("SELECT pg_advisory_lock(hashtextextended('outbox.erasure', 0))")
        assert isinstance(erase(settings, "person-4711").exception, FencedError)
        # Postgres releases a lock a moment after its connection was closed.
        ending = threading.Timer(0.5, other.close)
        ending.start()
        assert erased(settings, "person-4711")["keys"][0]["left"] == []
        ending.join()
    for role in ("outbox_writer", "outbox_publisher", "outbox_auditor"):
        environment = erasing.variables(settings, role=role)
        with mock.patch.object(erasing, "variables", return_value=environment):
            assert isinstance(erase(settings, "person-4711").exception, RefusedError)
