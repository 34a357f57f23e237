"""A schema id is a verdict on the records that name it, never a reason to stop; and it stays one, whatever the registry says later."""

import base64
import gc
import json
import random
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import orjson
import pyarrow as pa
import pytest
from confluent_kafka.schema_registry.avro import AvroSerializer

from service.formats.protobuf import why_unusable
from service.formats.registry import answers, pauses
from service.formats.registry import schemas as registry_schemas
from service.formats.registry.schemas import RegistrySchemas, schemas_of
from service.formats.wire import framed
from service.formats.writer import RegistryAwayError, UnusableSchema, WriterSchema
from service.settings import SessionSettings
from spark_job.api import OutputSchema, WithSchema
from spark_job.assembly import rebuild, rows, schemas
from spark_job.assembly.refused_ids import RefusedIds, RefusedRange
from spark_job.ledger.open_partitions import OpenPartition
from spark_job.outputs import schemas as output_schemas
from spark_job.outputs.schemas import output_encoder
from spark_job.outputs.settings import OutputSchemaRules
from spark_job.sessions.settings import AssemblySettings
from tests.support.histories import tasks
from tests.support.histories.tasks import Job, kafka, run_task, slice_of, task_settings
from tests.support.reference.model import Record
from tests.support.schemas.clicks import AVRO, avro_encoder
from tests.support.schemas.registry import Registry, registry

RULES = AssemblySettings(start="start", entry="entry", end="end", format="avro")
SESSION = SessionSettings(start="start", entry="entry", end="end")
EVENT = {"session_key": "k", "price_cents": 1, "tags": []}


@pytest.fixture(name="server")
def _server() -> Iterator[Registry]:
    with registry(own=True) as found:
        yield found


@pytest.fixture(name="slept")
def _slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The waits for schemas, which only a clock sees."""
    waits: list[float] = []
    clock = SimpleNamespace(
        sleep=waits.append,
        monotonic=lambda: time.monotonic() + sum(waits),
        time=lambda: time.time() + sum(waits),
    )
    monkeypatch.setattr(schemas, "time", clock)
    monkeypatch.setattr(registry_schemas, "time", clock)
    monkeypatch.setattr(pauses, "time", clock)
    monkeypatch.setattr(answers, "time", clock)
    monkeypatch.setattr(schemas, "REGISTERED_WITHIN_S", 90)  # a slow machine may take seconds to begin
    return waits


def click(schema_id: int, kind: str, key: str = "k") -> bytes:
    return avro_encoder(schema_id)(EVENT | {"event_type": kind, "session_key": key})


def log(values: list[bytes], ts: int = 0) -> dict[int, list[Record]]:
    return {0: [Record(0, offset, ts, None, value) for offset, value in enumerate(values)]}


def of(table: pa.Table, kind: int) -> pa.Table:
    return table.filter(pa.compute.equal(table.column("kind"), kind))


def letters(table: pa.Table) -> list[str]:
    return of(table, rows.LETTER).column("detail").to_pylist()  # type: ignore[no-any-return]


def record(name: str, of_type: object) -> str:
    return json.dumps({"type": "record", "name": name, "fields": [{"name": "x", "type": of_type}]})


def deep(levels: int) -> str:
    return '{"type": "array", "items": ' * levels + '"int"' + "}" * levels


def unusable(server: Registry) -> list[int]:
    """Ids of schemas by which nothing can be read."""
    proto = base64.b64encode(b"\x0a\x07a.proto").decode()
    server.register("a", "AVRO", record("A", "B"), {"B": ("b", 1)})
    server.register("b", "AVRO", record("B", "A"), {"A": ("a", 1)})
    return [
        2**31,
        2**32 - 1,
        0,
        server.register("none", "AVRO", record("N", "Other"), {"Other": ("absent", 1)}),
        server.register("version", "AVRO", record("V", "A"), {"A": ("a", 7)}),
        server.newest("a"),
        server.register("deep", "AVRO", deep(1_000)),
        server.register("deeper", "AVRO", deep(100_000)),
        server.register("minus", "AVRO", record("M", {"type": "fixed", "name": "F", "size": -8})),
        server.register("huge", "AVRO", record("H", {"type": "fixed", "name": "F", "size": 2**70})),
        server.register("text", "AVRO", record("T", {"type": "fixed", "name": "F", "size": "8"})),
        server.register("itself", "AVRO", record("I", "I")),
        server.register("no json", "AVRO", "{"),
        server.register("no schema", "AVRO", "[1]"),
        server.register("no fields", "AVRO", '{"type": "record", "name": "E"}'),
        server.register("other kind", "PROTOBUF", proto),
        server.register("other text", "PROTOBUF", 'syntax = "proto3"; import "@/etc/passwd";'),
    ]


def test_every_fact_about_a_schema_id_is_a_verdict_on_its_records_alone(
    server: Registry, tmp_path: Path
) -> None:
    bad = unusable(server)
    good = server.register("clicks", "AVRO", AVRO)
    values = [click(good, "start"), *(click(number, "entry") for number in bad), click(good, "end"), b"{"]
    settings = task_settings(tmp_path, registry=server.options())
    table = run_task(settings, {0: slice_of(0, RULES)}, log(values))
    found = of(table, rows.LETTER)
    assert found.column("closing_offset").to_pylist() == [*range(1, len(bad) + 1), len(bad) + 2]
    assert set(found.column("reason").to_pylist()) == {"malformed"}
    assert len(of(table, rows.SESSION)) == 1
    # All but the schema "no fields", by which a value can be read.
    counted = [
        orjson.loads(each)["counts"] for each in of(table, rows.PARTITION).column("detail").to_pylist()
    ]
    assert [(each["malformed"], each["unusable_schema"]) for each in counted] == [
        (len(bad) + 1, len(bad) - 1)
    ]
    assert not any(str(2**31) in each or str(2**32 - 1) in each for each in server.asked)


@pytest.mark.parametrize(("status", "code"), [(400, 400), (404, 40401), (409, 409), (422, 42201)])
def test_what_a_registry_answers_about_one_id_is_a_verdict_on_its_records_alone(
    server: Registry, tmp_path: Path, status: int, code: int
) -> None:
    good, bad = (
        server.register("clicks", "AVRO", json.dumps(json.loads(AVRO) | {"doc": str(n)})) for n in range(2)
    )
    values = [click(good, "start"), click(bad, "entry"), click(good, "end")]
    settings = task_settings(tmp_path, registry=server.options())
    body = json.dumps({"error_code": code, "message": "so it is"}).encode()
    with server.answering(status, body, to=f"/schemas/ids/{bad}"):
        table = run_task(settings, {0: slice_of(0, RULES)}, log(values))
    assert letters(table) == [
        f"the registry does not give schema {bad}: HTTP {status}, code {code}: so it is"
    ]
    assert len(of(table, rows.SESSION)) == 1


def test_why_a_schema_cannot_be_used_is_short_however_much_of_it_a_library_quotes(
    server: Registry, tmp_path: Path
) -> None:
    """Each record that names it is a letter with these words."""
    long = "X" * 100_000
    bad = [
        server.register("unknown", "AVRO", record("N", long)),
        server.register("size", "AVRO", record("S", {"type": "fixed", "name": "F", "size": long})),
        server.register("reference", "AVRO", record("R", "A"), {long: ("absent", 1)}),
    ]
    settings = task_settings(tmp_path, registry=server.options())
    found = letters(
        run_task(settings, {0: slice_of(0, RULES)}, log([click(number, "entry") for number in bad]))
    )
    assert len(found) == len(bad)
    assert max(map(len, found)) < 3_000
    for number, each in zip(bad, found, strict=True):
        assert each.startswith(f"schema {number}")


def test_why_a_protobuf_schema_cannot_be_used_is_short_too() -> None:
    no_descriptor = base64.b64encode(b"\xff").decode()
    why = why_unusable(WriterSchema("PROTOBUF", no_descriptor, (("X" * 100_000, no_descriptor),)))
    assert why is not None
    assert why.startswith("the descriptor of 'XXX")
    assert len(why) < 3_000


def test_a_young_record_waits_for_its_schema(
    server: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schemas, "REGISTERED_WITHIN_S", 90)
    settings = task_settings(tmp_path, registry=server.options())
    values = [click(1, "start"), click(1, "end")]
    later = threading.Timer(0.5, server.register, ("clicks", "AVRO", AVRO))
    later.start()
    try:
        table = run_task(
            settings, {0: slice_of(0, RULES)}, log(values, ts=round(time.time() * 1_000) + 10**9)
        )
    finally:
        later.join()
    assert (letters(table), len(of(table, rows.SESSION))) == ([], 1)


def test_the_wait_for_a_schema_ends_and_an_id_is_waited_for_once(
    server: Registry, tmp_path: Path, slept: list[float]
) -> None:
    settings = task_settings(tmp_path, registry=server.options())
    values = log([click(7, "start")], ts=round(time.time() * 1_000) + 10**9)
    assert letters(run_task(settings, {0: slice_of(0, RULES)}, values)) == ["the registry has no schema 7"]
    assert len(server.asked) > 1
    assert letters(run_task(settings, {0: slice_of(0, RULES)}, values)) == ["the registry has no schema 7"]
    assert sum(slept) <= schemas.REGISTERED_WITHIN_S


def test_made_up_ids_cost_a_bounded_number_of_requests_and_no_other_record(
    server: Registry, tmp_path: Path
) -> None:
    good = server.register("clicks", "AVRO", AVRO)
    made_up = [framed(10_000 + number, b"x") for number in range(5_000)]
    settings = task_settings(tmp_path, registry=server.options())
    values = [click(good, "start"), *made_up, click(good, "end")]
    before = len(server.asked)
    table = run_task(settings, {0: slice_of(0, RULES)}, log(values))
    assert len(server.asked) - before <= schemas.MOST_IN_VAIN + 1
    assert len(of(table, rows.SESSION)) == 1
    assert len(letters(table)) == len(made_up)
    assert sum("was not asked" in each for each in letters(table)) == len(made_up) - schemas.MOST_IN_VAIN


def test_a_task_has_one_budget_for_made_up_ids_and_every_partition_still_asks_for_its_own(
    server: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schemas, "REGISTERED_WITHIN_S", 0)  # what is old needs no second question
    monkeypatch.setattr(registry_schemas, "_UNUSABLE_S", 0.0)
    good = server.register("clicks", "AVRO", AVRO)
    partitions = range(20)
    logs: dict[int, list[Record]] = {}
    for each in partitions:
        # Some are the same in all partitions, and some are not.
        made_up = [framed(number + 10_000 * each * (number % 2), b"x") for number in range(1_000, 1_300)]
        values = [*made_up, click(good, "start"), click(good, "end")]
        # The first partition has nothing else, so that the task meets the flood before it knows a schema that can be used.
        values = values if each else made_up
        logs[each] = [Record(each, offset, 0, None, value) for offset, value in enumerate(values)]
    settings = task_settings(tmp_path, registry=server.options())
    before = len(server.asked)
    table = run_task(settings, {each: slice_of(each, RULES) for each in partitions}, logs)
    assert len(server.asked) - before <= schemas.MOST_IN_VAIN + 1 + len(partitions)
    assert len(of(table, rows.SESSION)) == len(partitions) - 1
    assert len(letters(table)) == 300 * len(partitions)


def test_a_task_waits_once_for_schemas_that_do_not_come(
    server: Registry, tmp_path: Path, slept: list[float]
) -> None:
    """A producer writes the time of a record, and Kafka lets it lie in the future."""
    later = round(time.time() * 1_000) + 10**9
    logs = {each: [Record(each, 0, later, None, click(100 + each, "start"))] for each in range(20)}
    settings = task_settings(tmp_path, registry=server.options())
    table = run_task(settings, {each: slice_of(each, RULES) for each in logs}, logs)
    assert len(letters(table)) == len(logs)
    assert 0 < sum(slept) <= schemas.REGISTERED_WITHIN_S


def test_a_registry_that_wants_a_pause_gets_one(server: Registry) -> None:
    schema_id = server.register("clicks", "AVRO", AVRO)
    found = RegistrySchemas(server.options())
    server.pause(1)
    assert isinstance(found[schema_id], WriterSchema)
    assert server.asked_in_a_pause == 1
    server.pause(3_600)
    for _ in range(3):
        with pytest.raises(RegistryAwayError, match="wants no request for 3600 seconds"):
            found[schema_id + 1]
    assert server.asked_in_a_pause == 2
    found.client.close()


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        ("9" * 400, 3_600),
        ("Fri, 31 Dec 9999 23:59:59 GMT", 3_600),
        ("Fri, 31 Dec 2021 23:59:59 GMT", 0),
        ("Fri, 31 Dec 9999 23:59:59 -2300", None),
        ("Fri, 31 Dec 2021 23:59:59 +9999999999999", None),
        ("-5", None),
        ("soon", None),
    ],
)
def test_a_pause_is_an_hour_at_the_most_whatever_the_registry_writes(given: str, seconds: int | None) -> None:
    assert pauses.seconds(given) == seconds


def test_a_client_that_has_failed_for_long_is_made_again(
    server: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may hold a token, or a connection to a machine that is none any more: nothing else would ever make another one."""
    schema_id = server.register("events-value", "AVRO", AVRO)
    found = schemas_of(server.options())
    encode = output_encoder(server.options(), OutputSchemaRules())
    assert encode is not None
    value = WithSchema(EVENT | {"event_type": "start"}, OutputSchema("avro", AVRO))

    def fail() -> None:
        with server.answering(503):
            with pytest.raises(RegistryAwayError):
                found[schema_id]
            with pytest.raises(RegistryAwayError):
                encode("events", value)

    first = found.client
    monkeypatch.setattr(registry_schemas, "_LASTS_S", 1e9)
    fail()
    assert found.client is first
    monkeypatch.setattr(registry_schemas, "_LASTS_S", 0.0)
    fail()
    assert found.client is not first
    assert isinstance(found[schema_id], WriterSchema)
    assert encode("events", value).startswith(framed(schema_id, b""))
    server.pause(3_600)
    for _ in range(2):
        with pytest.raises(RegistryAwayError, match="wants no request"):
            found[schema_id + 1]
    assert server.asked_in_a_pause == 1


def test_a_client_of_former_secrets_is_let_go(server: Registry) -> None:
    """A worker of Spark lives for months, and some secrets for an hour."""
    rules = OutputSchemaRules()

    def rotated(secret: int) -> weakref.ref[RegistrySchemas]:
        options = server.options() | {"basic.auth.user.info": f"job:{secret}"}
        assert output_encoder(options, rules) is not None
        return weakref.ref(schemas_of(options))

    clients = [rotated(secret) for secret in range(10)]
    gc.collect()
    assert clients[0]() is None
    assert clients[-1]() is not None


def serializers() -> int:
    """How many there are in this process."""
    gc.collect()
    return sum(isinstance(each, AvroSerializer) for each in gc.get_objects())


def test_topics_of_events_do_not_fill_a_worker_with_serializers(
    server: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output_schemas, "_MOST_SERIALIZERS", 3)
    schema_id = server.register("shop.Click", "AVRO", AVRO)
    encode = output_encoder(server.options(), OutputSchemaRules(subject_name_strategy="record"))
    assert encode is not None
    value = WithSchema(EVENT | {"event_type": "start"}, OutputSchema("avro", AVRO))
    before = serializers()
    for topic in range(10):
        assert encode(f"topic-{topic}", value).startswith(framed(schema_id, b""))
    assert 0 < serializers() - before <= 3


@pytest.mark.parametrize("most_chars", [1, 1 << 20])
def test_a_worker_forgets_the_schemas_that_it_used_longest_ago_and_judges_as_before(
    server: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most_chars: int
) -> None:
    monkeypatch.setattr(registry_schemas, "MOST_CHARS", most_chars)
    good = [
        server.register("clicks", "AVRO", json.dumps(json.loads(AVRO) | {"doc": str(n)})) for n in range(4)
    ]
    bad = unusable(server)
    values = [click(good[0], "start")]
    values += [click(number, "entry") for _ in range(2) for number in (*good, *bad)]
    values += [click(good[1], "end")]
    settings = task_settings(tmp_path, registry=server.options(), function=f"{tasks.__name__}:careless")
    table = run_task(settings, {0: slice_of(0, RULES)}, log(values))
    assert len(letters(table)) == 2 * len(bad)
    assert of(table, rows.SESSION).column("outputs").to_pylist() == [1]
    known = schemas_of(settings.registry)
    assert (len(known) == 1) == (most_chars == 1)
    kept_by_its_client = {name: kept for name, kept in vars(known.client._cache).items() if name != "lock"}
    assert not any(kept_by_its_client.values())


def test_no_output_depends_on_a_registry_that_fails_while_the_transform_runs(
    server: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry_schemas, "MOST_CHARS", 1)
    one, other = (
        server.register("clicks", "AVRO", json.dumps(json.loads(AVRO) | {"doc": str(n)})) for n in range(2)
    )
    values = log([click(one, "start"), click(other, "end")])
    fetch, asked, most = RegistrySchemas.fetch, 0, 1_000

    def fetch_some(self: RegistrySchemas, schema_id: int) -> WriterSchema | UnusableSchema:
        nonlocal asked
        asked += 1
        if asked > most:
            raise RegistryAwayError("away")
        return fetch(self, schema_id)

    monkeypatch.setattr(RegistrySchemas, "fetch", fetch_some)

    def run(timeout: float) -> None:
        settings = task_settings(
            tmp_path / str(timeout),
            registry=server.options(timeout=timeout),
            function=f"{tasks.__name__}:careless",
        )
        table = run_task(settings, {0: slice_of(0, RULES)}, values)
        assert len(of(table, rows.SESSION)) == 1

    run(5)
    most, asked = asked - 1, 0
    with pytest.raises(RegistryAwayError, match="away"):
        run(6)


def histories(seed: int) -> tuple[list[bytes], list[tuple[int, bool]]]:
    """(values, [(where a batch ends, whether another schema is registered before it)]). Each key has its sessions by one id or another."""
    rng = random.Random(seed)
    values: list[bytes] = []
    opened: set[str] = set()
    for _ in range(120):
        key, schema_id = rng.choice("abcd"), rng.choice([1, 1, 2, 3, 4])
        kind = rng.choice(["entry", "entry", "entry", "end"]) if key in opened else "start"
        (opened.discard if kind == "end" else opened.add)(key)
        values.append(click(schema_id, kind, key))
    ends = [*sorted(rng.sample(range(1, 120), 14)), 120]
    return values, [(end, rng.random() < 0.3) for end in ends]


@pytest.mark.parametrize("seed", range(6))
def test_what_is_open_is_found_again_though_the_registry_has_learned_since(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry_schemas, "_UNUSABLE_S", 0.0)
    values, batches = histories(seed)
    logs = log(values)
    monkeypatch.setattr(rebuild, "committed_records", kafka(logs))
    jobs = []
    for lost in (False, True):
        with registry(own=True) as server:
            server.register("clicks", "AVRO", AVRO)
            folder = tmp_path / str(lost)
            job = Job(logs, folder, SESSION, format="avro", registry=server.options())
            digests = []
            for number, (end, learns) in enumerate(batches):
                if learns:
                    newer = json.loads(AVRO) | {"doc": str(number)}
                    server.register("clicks", "AVRO", orjson.dumps(newer).decode())
                job.run_batch({0: end}, lose_cache={0} if lost else ())
                digests.append(job.digests())
            jobs.append((digests, job.outcome()))
    assert any(letter.reason == "malformed" for letter in jobs[0][1][1])
    assert jobs[0] == jobs[1]


@pytest.mark.parametrize("seed", range(2))
def test_what_a_task_had_no_budget_to_ask_stays_refused_in_every_rebuild(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which ids are left unasked depends on the task and the worker; a rebuild that judged one otherwise would raise."""
    monkeypatch.setattr(registry_schemas, "_UNUSABLE_S", 0.0)
    monkeypatch.setattr(schemas, "MOST_IN_VAIN", 2)
    rng = random.Random(seed)
    logs: dict[int, list[Record]] = {}
    for each in range(4):
        values, batches = histories(10 * seed + each)
        for made_up in range(40):
            values.insert(rng.randrange(len(values)), framed(100 + made_up, b"x"))
        logs[each] = [Record(each, offset, 0, None, value) for offset, value in enumerate(values)]
    monkeypatch.setattr(rebuild, "committed_records", kafka(logs))
    with registry(own=True) as server:
        server.register("clicks", "AVRO", AVRO)
        job = Job(logs, tmp_path, SESSION, format="avro", registry=server.options())
        for number, (end, learns) in enumerate(batches):
            if learns:
                server.register(
                    "clicks", "AVRO", orjson.dumps(json.loads(AVRO) | {"doc": str(number)}).decode()
                )
            if rng.random() < 0.5:
                server.close_clients()  # another worker
            end = len(logs[0]) if end == 120 else end
            tasks = rng.choice([1, 2, 4])
            job.run_batch(
                dict.fromkeys(logs, end),
                tasks=tasks,
                lose_cache=[each for each in range(tasks) if rng.random() < 0.5],
            )
    assert job.rebuilt
    assert job.sessions
    assert any("was not asked" in letter.detail for letter in job.letters)


def test_the_verdicts_of_a_position_are_kept_with_it_and_end_with_what_is_open() -> None:
    found = RefusedIds((RefusedRange(7, 10, 20, False), RefusedRange(9, 3, 5, True)))
    kept = OpenPartition(4, 1, 1, 1, "3-d", refused=found)
    assert OpenPartition.from_json(json.loads(json.dumps(kept.to_json()))) == kept
    assert found.since(6).ranges == (RefusedRange(7, 10, 20, False),)
    below = kept.below(15)
    assert below is not None
    assert below.refused.ranges == (RefusedRange(7, 10, 14, False), RefusedRange(9, 3, 5, True))


def test_an_id_that_is_refused_again_after_it_was_read_has_a_range_of_its_own() -> None:
    import numpy as np

    gone = UnusableSchema("gone")
    verdicts: list[UnusableSchema | None] = [gone, gone, None, gone]

    def at(*offsets: int) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
        return np.array(offsets, np.int64)

    found = RefusedIds()
    for offsets, verdict in zip([at(1, 3), at(5), at(6), at(8, 9)], verdicts, strict=True):
        found = found.judged(np.full(len(offsets), 7), offsets, {7: verdict})
    assert found.ranges == (RefusedRange(7, 1, 5, True), RefusedRange(7, 8, 9, False))
    which = found.of(np.array([7, 7, 7, 7, 8]), at(5, 6, 7, 8, 8))
    assert which.tolist() == [True, False, False, True, False]


def test_only_the_least_ids_are_kept_on_a_row_of_the_ledger(monkeypatch: pytest.MonkeyPatch) -> None:
    import numpy as np

    from spark_job.assembly import refused_ids

    monkeypatch.setattr(refused_ids, "MOST_RANGES", 2)
    numbers = np.array([9, 5, 7], np.int64)
    found = RefusedIds().judged(
        numbers, np.arange(3), {number: UnusableSchema("") for number in numbers.tolist()}
    )
    assert [each.schema_id for each in found.ranges] == [5, 7]
