"""A replay sends what its filters name, to where it is told, and says what it leaves out."""

import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import LiteralString, NamedTuple

import psycopg
import pytest

from db.statements import queries
from devstack.kafka import Kafka, KafkaServer
from devstack.topics import create_topics
from publisher.replay import reader
from service.errors import SettingsError
from service.formats.wire import framed
from service.settings import Settings
from tests.support.outbox.batches import TOPIC_ID, Outbox, Session, simple
from tests.support.outbox.deliveries import assert_exactly_once, deliver
from tests.support.outbox.replays import Event, ReplayProcess, assert_replayed, replay, replayed, seen_of
from tests.support.processes.publishers import settings_for
from tests.support.queries import query
from tests.support.waiting import wait_until
from tests.support.watching import Watcher

_REPLAYS = queries("publisher", "replays")

BATCHES = 12


class Output(NamedTuple):
    """One output event as it was written, with where it stands."""

    batch: int
    key: str
    topic: str
    event: Event


@pytest.fixture
def other(kafka: KafkaServer, topic_prefix: str) -> str:
    """A topic beside the outputs' own."""
    name = f"{topic_prefix}other"
    create_topics(kafka.bootstrap_servers, {name: (2, {})})
    return name


@pytest.fixture
def mixed(outbox: Outbox, settings: Settings, other: str) -> list[Output]:
    """Twelve delivered batches, committed an hour apart, of outputs for two topics; one row of them is parked."""
    written = []
    for batch in range(1, BATCHES + 1):
        sessions: dict[str, Sequence[Session]] = {}
        for number in range(1 + batch % 4, 8):
            key, end = f"k{number}", batch * 1_000 + number
            topics = [outbox.topic, other, outbox.topic][: 1 + number % 3]
            parked = batch == 3 and number == 5
            values: list[bytes | None] = [b"%d/%d/%d" % (batch, number, n) for n in range(len(topics))]
            sessions[key] = [Session(values, end, topics, partitions=[99] * len(topics) if parked else None)]
            if not parked:
                written += [
                    Output(batch, key, topic, (key.encode(), values[n], f"{TOPIC_ID}/0/{end}/{n}"))
                    for n, topic in enumerate(topics)
                ]
        outbox.batch(sessions)
    query(
        outbox.dsn,
        "UPDATE outbox.batch SET created_at = now() - make_interval(mins => 60 * (%s - batch_id::int) + 30)",
        BATCHES,
    )
    deliver(settings)
    return written


@pytest.mark.guarantee(52, 74)
def test_filters_choose_what_a_brute_force_model_chooses(
    outbox: Outbox,
    settings: Settings,
    mixed: list[Output],
    other: str,
    kafka: KafkaServer,
    topic_prefix: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Many lists of few places, and windows without any.
    monkeypatch.setattr(reader, "LISTED_ROWS", 5)
    monkeypatch.setattr(reader, "WINDOW_BATCHES", 2)
    keys = tmp_path / "keys"
    keys.write_text("k7\nk1\n\nk7\nunknown\n", "utf-8")
    at_seven = query(outbox.dsn, "SELECT created_at FROM outbox.batch WHERE batch_id = 7")[0][0].isoformat()
    cases: dict[str, Callable[[Output], bool]] = {
        "--all": lambda o: True,
        "--from-batch 4 --to-batch 9": lambda o: 4 <= o.batch <= 9,
        f"--since {at_seven}": lambda o: o.batch >= 7,
        f"--until {at_seven} --from-batch 2": lambda o: 2 <= o.batch < 7,
        "--since 5h --until 1h": lambda o: 8 <= o.batch <= 11,
        f"--keys-file {keys} --key k5": lambda o: o.key in {"k1", "k5", "k7"},
        f"--topic {other}": lambda o: o.topic == other,
        f"--topic {outbox.topic} --key k2 --key k5 --from-batch 3 --since 8h": lambda o: (
            o.topic == outbox.topic and o.key in {"k2", "k5"} and o.batch >= 5
        ),
    }
    into = f"{topic_prefix}into"
    create_topics(kafka.bootstrap_servers, {into: (2, {})})
    with Watcher(kafka.bootstrap_servers, into, tolerant=True) as watcher:
        for arguments, chosen in cases.items():
            wanted = [output for output in mixed if chosen(output)]
            rows = {(output.batch, output.key) for output in wanted}
            counted = replayed(settings, "start", *arguments.split(), "--dry-run")
            assert (counted["rows"], counted["events"]) == (len(rows), len(wanted)), arguments
            assert counted["sessions"] == len(rows)
            assert counted["bytes"] == sum(len(output.event[1] or b"") for output in wanted)
            for topic, part in counted["topics"].items():
                of_topic = [output for output in wanted if output.topic == topic]
                assert part["events"] == len(of_topic)
                assert part["rows"] == len({(output.batch, output.key) for output in of_topic})
            done = replayed(settings, "start", *arguments.split(), "--to-topic", into, "--yes")
            assert (done["state"], done["rows_sent"], done["events_sent"]) == ("done", len(rows), len(wanted))
            assert_replayed(watcher, done["replay_uuid"], [output.event for output in wanted])


@pytest.mark.guarantee(79)
def test_a_dry_run_and_a_start_that_nobody_confirms_make_nothing(
    outbox: Outbox, settings: Settings, watcher: Watcher
) -> None:
    outbox.batch(simple(1, keys=3))
    deliver(settings)
    assert replayed(settings, "start", "--all", "--dry-run")["events"] == 9
    refused = replay(settings, "start", "--all")
    assert getattr(refused.exception, "exit_code", None) == 2
    assert "--yes" in str(refused.exception)
    assert "say --all" in str(replay(settings, "start").exception)
    mistyped = replay(settings, "start", "--key", "nobody", "--yes")
    assert mistyped.exit_code == 1
    assert "nothing to send" in mistyped.stdout
    assert "session key 'nobody' has no row in these batches" in mistyped.stderr
    partly = replay(settings, "start", "--key", "nobody", "--key", "k0001", "--dry-run", "--json")
    assert (partly.exit_code, json.loads(partly.stdout)["unknown_keys"]) == (0, ["nobody"])
    assert query(outbox.dsn, "SELECT count(*) FROM outbox.replay") == [(0,)]
    assert_exactly_once(outbox, watcher)


def test_show_names_the_keys_of_the_filter(outbox: Outbox, settings: Settings) -> None:
    outbox.batch(simple(1, keys=3))
    deliver(settings)
    done = replayed(settings, "start", "--key", "k0002", "--key", "k0001", "--yes")
    shown = replayed(settings, "show", str(done["replay_id"]))
    assert shown["keys"] == ["k0001", "k0002"]
    said = replay(settings, "show", str(done["replay_id"])).stdout
    assert "k0001\n" in said
    assert "k0002\n" in said
    listed = replay(settings, "list", "--all").stdout
    assert max(map(len, listed.splitlines())) <= 80, listed


def test_a_dry_run_ends_as_the_start_would_where_the_target_topic_is_missing(
    outbox: Outbox, settings: Settings, topic_prefix: str
) -> None:
    outbox.batch(simple(1, keys=3))
    deliver(settings)
    missing = ("start", "--all", "--to-topic", f"{topic_prefix}absent")
    for arguments in (("--dry-run",), ("--yes",)):
        refused = replay(settings, *missing, *arguments).exception
        assert getattr(refused, "exit_code", None) == 5
        assert "target_topic_missing" in str(refused)
    assert replay(settings, *missing, "--dry-run", "--create-topics").exit_code == 0
    assert query(outbox.dsn, "SELECT count(*) FROM outbox.replay") == [(0,)]


@pytest.mark.guarantee(76)
def test_a_replay_never_overtakes_live_publishing(
    outbox: Outbox, settings: Settings, watcher: Watcher
) -> None:
    outbox.batch(simple(1, keys=6))
    deliver(settings)
    delivered = list(outbox.written)
    outbox.batch(simple(2, keys=6))
    done = replayed(settings, "start", "--all", "--yes")
    assert (done["from_batch"], done["to_batch"]) == (1, 1)
    (note,) = replayed(settings, "start", "--all", "--dry-run")["left_out"]
    assert "batches 2 to 2 are left out: not every lane has delivered them" in note
    assert_replayed(watcher, done["replay_uuid"], delivered)


@pytest.mark.guarantee(76, 141)
def test_a_replay_beside_live_publishing_disturbs_neither(
    outbox: Outbox, settings: Settings, watcher: Watcher, tmp_path: Path
) -> None:
    for batch in range(1, 5):
        outbox.batch(simple(batch, keys=20))
    deliver(settings)
    with ReplayProcess(settings, tmp_path / "log", "start", "--all", "--yes", "--rate", "100") as process:
        for batch in range(5, 15):
            outbox.batch(simple(batch, keys=20))
        deliver(settings)
        assert process.wait() == 0, process.log()
    uuid, to_batch = query(outbox.dsn, "SELECT replay_uuid, to_batch FROM outbox.replay")[0]
    assert to_batch >= 4
    assert_replayed(watcher, str(uuid), outbox.written[: to_batch * 60])
    wait_until(lambda: len(seen_of(watcher, None)) >= len(outbox.written), "the live events")
    assert sorted(seen_of(watcher, None), key=repr) == sorted(outbox.written, key=repr)


@pytest.mark.guarantee(78)
@pytest.mark.parametrize("compression", ["none", "lz4"])
def test_a_row_that_the_target_refuses_stops_the_replay_until_it_is_mended_or_left_out(
    database: str, topic: str, kafka: KafkaServer, topic_prefix: str, compression: str
) -> None:
    outbox = Outbox(database, topic)
    settings = settings_for(
        database, kafka.bootstrap_servers, {"compression.type": compression}, transaction_sessions=4
    )
    narrow = f"{topic_prefix}narrow"
    create_topics(kafka.bootstrap_servers, {narrow: (2, {"max.message.bytes": "1000"})})
    outbox.batch(simple(1, keys=10))
    fitting = list(outbox.written)
    # Does not shrink: with compression only the broker can tell that it is too large.
    outbox.batch({"large": [Session([os.urandom(3_000)], 7)]})
    outbox.batch(simple(3, keys=2))
    fitting += outbox.written[-6:]
    deliver(settings)
    with Watcher(kafka.bootstrap_servers, narrow, tolerant=True) as watcher:
        stopped = replay(settings, "start", "--all", "--to-topic", narrow, "--yes")
        assert getattr(stopped.exception, "exit_code", None) == 5
        assert "row_refused" in str(stopped.exception)
        assert 'session key "large"' in str(stopped.exception)
        shown = replayed(settings, "show", "1")
        assert (shown["state"], shown["events_sent"]) == ("stopped", 24)
        assert "row_refused" in shown["reason"]
        assert "row_refused" in str(replay(settings, "go-on", "1").exception)
        done = replayed(settings, "go-on", "1", "--skip-refused")
        assert (done["state"], done["rows_sent"], done["rows_skipped"]) == ("done", 12, 1)
        assert_replayed(watcher, done["replay_uuid"], fitting)


@pytest.mark.guarantee(77)
@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("UPDATE outbox.batch SET commit_id = gen_random_uuid()", "database_restored"),
        ("UPDATE outbox.replay SET seq = 1, cursor_batch = 1", "database_restored"),
        ("UPDATE outbox.replay SET seq = 9", "kafka_lost"),
        ("UPDATE outbox.replay SET replay_uuid = gen_random_uuid()", "kafka_lost"),
        ("DELETE FROM outbox.session_output WHERE batch_id = 4", "rows_gone"),
    ],
)
def test_a_replay_does_not_continue_over_a_history_that_is_not_the_one_it_sent(
    database: str, topic: str, kafka: KafkaServer, topic_prefix: str, change: str, why: str
) -> None:
    outbox = Outbox(database, topic)
    settings = settings_for(database, kafka.bootstrap_servers)
    narrow = f"{topic_prefix}narrow"
    create_topics(kafka.bootstrap_servers, {narrow: (1, {"max.message.bytes": "1000"})})
    settings = settings_for(database, kafka.bootstrap_servers, transaction_sessions=2)
    outbox.batch(simple(1, keys=4))
    outbox.batch(simple(2, keys=2))
    outbox.batch({"large": [Session([os.urandom(3_000)], 7)]})
    outbox.batch(simple(4, keys=2))
    deliver(settings)
    assert "row_refused" in str(replay(settings, "start", "--all", "--to-topic", narrow, "--yes").exception)
    query(outbox.dsn, change)
    stopped = replay(settings, "go-on", "1", "--skip-refused")
    assert getattr(stopped.exception, "exit_code", None) == 5
    assert str(stopped.exception).startswith(why)


@pytest.mark.parametrize(
    "sql",
    [_REPLAYS["next"], _REPLAYS["next_of_keys"], _REPLAYS["rows"]],
    ids=["next", "next_of_keys", "rows"],
)
def test_reading_opens_only_the_partitions_of_the_range_and_lists_without_the_wide_rows(
    outbox: Outbox, sql: LiteralString
) -> None:
    values = {"replay_id": 1, "from_batch": 5, "from_key": "", "to_batch": 900, "rows": 100}
    places = {"batch_ids": list(range(5, 105)), "session_keys": ["key"] * 100, "bytes": 1_000, "expansion": 4}
    with psycopg.connect(outbox.dsn, autocommit=True) as connection:
        connection.execute("SELECT outbox.ensure_partitions(20000, 49999)")
        found = connection.execute("EXPLAIN " + sql, values | places).fetchall()
    plan = "\n".join(line[0] for line in found)
    assert "session_output_p00000000" in plan
    assert not any(f"session_output_p0000000{n}" in plan for n in (1, 2, 3, 4))
    if sql == _REPLAYS["next"]:
        assert "Index Only Scan using session_output_p00000000_cursor_idx" in plan


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """Another Kafka cluster."""
    server = Kafka(tmp_path_factory.mktemp("cluster") / "kafka", fast=True)
    server.start()
    yield server
    server.destroy()


@pytest.mark.guarantee(74)
def test_a_replay_to_another_cluster_makes_the_topics_on_request_and_goes_there_when_it_is_named_again(
    outbox: Outbox, settings: Settings, cluster: Kafka, watcher: Watcher, tmp_path: Path
) -> None:
    for batch in range(1, 4):
        outbox.batch(simple(batch, keys=5))
    deliver(settings)
    file = tmp_path / "staging.toml"
    file.write_text(f'[kafka]\nbootstrap_servers = "{cluster.bootstrap_servers}"\n', "utf-8")
    missing = replay(settings, "start", "--all", "--yes", "--to-config", str(file))
    assert "target_topic_missing" in str(missing.exception)
    assert "--create-topics" in str(missing.exception)
    arguments = ("start", "--all", "--yes", "--create-topics", "--rate", "5")
    with ReplayProcess(settings, tmp_path / "log", *arguments, "--to-config", str(file)) as process:
        wait_until(
            lambda: bool(query(outbox.dsn, "SELECT 1 FROM outbox.replay WHERE lease_holder IS NOT NULL")),
            "the start",
        )
        replayed(settings, "pause", "1")
        assert process.wait() == 0, process.log()
    astray = replay(settings, "go-on", "1", "--to-servers", settings.kafka.bootstrap_servers)
    assert "other_cluster" in str(astray.exception)
    # The database says how the start named the target, and nobody follows that: its writers could have changed it.
    assert "other_cluster" in str(replay(settings, "go-on", "1").exception)
    assert replayed(settings, "show", "1")["requested"]["to_config"] == str(file)
    done = replayed(settings, "go-on", "1", "--rate", "0", "--to-config", str(file))
    assert done["target_servers"] == cluster.bootstrap_servers
    with Watcher(cluster.bootstrap_servers, outbox.topic, tolerant=True) as there:
        assert_replayed(there, done["replay_uuid"], outbox.written)
        again = replayed(
            settings, "start", "--from-batch", "2", "--yes", "--to-servers", cluster.bootstrap_servers
        )
        assert_replayed(there, again["replay_uuid"], outbox.written[15:])
    assert seen_of(watcher, done["replay_uuid"]) == []


def test_values_that_name_their_schemas_go_to_another_cluster_only_where_somebody_says_that_it_knows_them(
    outbox: Outbox, settings: Settings, cluster: Kafka, watcher: Watcher, tmp_path: Path
) -> None:
    outbox.batch({"k": [Session([framed(7, b"\2k"), framed(8, b"\2k")], 99)]})
    deliver(settings)
    file = tmp_path / "outbox.toml"
    file.write_text('[schema_registry]\nurl = "http://127.0.0.1:1"\n', "utf-8")
    start = ("start", "--all", "--yes", "--create-topics", "--config", str(file))
    there = ("--to-servers", cluster.bootstrap_servers)
    refused = replay(settings, *start, *there)
    assert isinstance(refused.exception, SettingsError)
    assert "'http://127.0.0.1:1'" in str(refused.exception)
    assert "--keep-schema-ids" in str(refused.exception)
    assert query(outbox.dsn, "SELECT count(*) FROM outbox.replay") == [(0,)]
    done = replayed(settings, *start, *there, "--keep-schema-ids")
    with Watcher(cluster.bootstrap_servers, outbox.topic, tolerant=True) as seen:
        assert_replayed(seen, done["replay_uuid"], outbox.written)
    assert seen_of(watcher, done["replay_uuid"]) == []
    # Within the cluster consumers use the same registry.
    here = replayed(settings, *start)
    assert_replayed(watcher, here["replay_uuid"], outbox.written)
