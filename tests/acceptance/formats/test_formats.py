"""Sessions of events in every format come out the same; a registry that is away or refuses costs nothing."""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

import pytest

from devstack.kafka import KafkaServer
from service.formats.wire import framed
from tests.support.pipeline import verdict
from tests.support.pipeline.transforms import CARTS, PAGES
from tests.support.processes.commands import run_command
from tests.support.schemas.registry import Registry, registry
from tests.support.schemas.stand import Record, Stand, clicks_of, stand, told_of, total_of
from tests.support.schemas.transforms import FAILS, HERE, REFUSED, TOTALS

KEYS = [f"visitor-{number}-é" for number in range(8)]
NO_SUCH_ID = 2_000_000_000
NO_ID = 0
"""In the place of the id of outputs, where none of them has a schema."""
RESTARTED = "UnavailableError"

Stands = Callable[..., AbstractContextManager[Stand]]


@pytest.fixture(name="server")
def _server() -> Iterator[Registry]:
    with registry() as found:
        yield found


@pytest.fixture
def stands(database: str, kafka: KafkaServer, topic_prefix: str, tmp_path: Path, server: Registry) -> Stands:
    """Makes the stand of a format."""
    return partial(stand, (database, kafka.bootstrap_servers, topic_prefix, tmp_path), server)


@pytest.mark.faults
@pytest.mark.parametrize(("format", "transform"), [("json", "plain"), ("bytes", "of_bytes")])
def test_formats_without_schemas(stands: Stands, format: str, transform: str) -> None:
    with stands(format, transform) as found:
        found.pipeline.publisher.start()
        found.pipeline.job.start()
        for events in (first(KEYS), rest(KEYS)):
            found.feed(found.encoder(), events)
            found.wait_for_input()
        finished(found, KEYS, NO_ID)
        found.pipeline.stop()


def test_avro_with_a_registry_that_is_away_a_mended_transform_and_a_schema_that_nobody_registered(
    stands: Stands,
) -> None:
    keys = [*KEYS, f"{FAILS}-1"]
    with stands("avro", "avro") as found:
        pipeline, schema_id = found.pipeline, of_outputs(found, "AVRO")
        poison = begun(found, keys)

        newer = found.encoder(newer=True)
        batches = pipeline.batches()
        with found.link.down():
            found.feed(newer, with_shop(rest(keys)))
            pipeline.wait_until(
                lambda: pipeline.restarts(), "an attempt without the registry", alive=(pipeline.job,)
            )
            url = pipeline.options["schema_registry"]["url"]
            assert f"the schema registry at {url} does not answer" in pipeline.job.log()
            assert f"the schema registry at {url} does not answer" in json.dumps(pipeline.status())
            assert (pipeline.batches(), len(found.letters("malformed"))) == (batches, len(poison))
        found.complete()
        assert set(pipeline.restarts()) == {RESTARTED}
        ((_, kept),) = found.letters("transform_failed")
        assert (kept or b"")[0] == 0

        mended = {"OUTBOX_TRANSFORM__FUNCTION": f"{HERE}:avro_mended"}
        ((letter_id,),) = pipeline.ask(
            "SELECT dead_letter_id FROM outbox.dead_letter WHERE reason = 'transform_failed'"
        )
        assert f'"session_key":"{FAILS}-1"' in pipeline.command("dead-letters", "show", str(letter_id))
        retried = pipeline.command_json("dead-letters", "retry", str(letter_id), "--yes", **mended)
        assert (len(retried["retried"]), retried["failed"], retried["refused"]) == (1, [], [])
        found.complete()
        malformed_are(found, poison)
        finished(found, keys, schema_id)

        refused(found, newer, "not found" if not found.registry.is_real else "No artifact")
        pipeline.publisher.terminate()


@pytest.mark.faults
def test_protobuf_with_schemas_that_are_registered_on_the_way_and_one_that_is_not_compatible(
    stands: Stands,
) -> None:
    with stands("protobuf", "protobuf", auto_register=True) as found:
        subject = f"{found.pipeline.prefix}{PAGES}-value"
        found.registry.register(subject, "AVRO", TOTALS["avro"].definition)
        found.registry.keep_compatible(subject)
        poison = begun(found, KEYS)
        newer = found.encoder(newer=True)
        found.feed(newer, with_shop(rest(KEYS)))
        found.complete()
        malformed_are(found, poison)
        finished(found, KEYS, found.registry.newest(f"{found.pipeline.prefix}{CARTS}-value"))
        refused(found, newer, "ncompatible")
        found.pipeline.publisher.terminate()


@pytest.mark.faults
def test_json_with_a_schema_whose_id_is_in_a_header(stands: Stands) -> None:
    with stands("json-schema", "json_schema", in_header=True) as found:
        schema_id = of_outputs(found, "JSON")
        poison = begun(found, KEYS)
        found.feed(found.encoder(newer=True), with_shop(rest(KEYS)))
        found.complete()
        malformed_are(found, poison)
        finished(found, KEYS, schema_id)
        found.pipeline.stop()


def first(keys: list[str]) -> list[dict[str, object]]:
    """The first two events of each visitor."""
    return [event for key in keys for event in clicks_of(key)[:2]]


def rest(keys: list[str]) -> list[dict[str, object]]:
    """The others, one of them twice."""
    return [event for key in keys for event in (*clicks_of(key)[2:3], *clicks_of(key)[2:])]


def with_shop(events: list[dict[str, object]]) -> list[dict[str, object]]:
    """What the next version of the schema has beside the rest."""
    return [event | {"shop": "there"} for event in events]


def of_outputs(found: Stand, kind: str) -> int:
    """Register the schema of the outputs for CARTS; return its id."""
    text = TOTALS[found.format].definition
    return found.registry.register(f"{found.pipeline.prefix}{CARTS}-value", kind, text)


def begun(found: Stand, keys: list[str]) -> list[Record]:
    """Start both services and let them open the sessions; return the records among these that nobody can read."""
    encode = found.encoder()
    (good,) = found.records(encode, clicks_of("x")[:1])
    unknown = NO_SUCH_ID.to_bytes(4, "big")
    cut_off = Record(good.value[:-1], schema_id=good.schema_id)
    if found.in_header:
        poison = [Record(good.value), Record(good.value, schema_id=unknown), cut_off]
    else:
        poison = [Record(b"\1" + good.value[1:]), Record(framed(NO_SUCH_ID, good.value[5:])), cut_off]
    found.pipeline.publisher.start()
    found.pipeline.job.start()
    found.feed(encode, first(keys), poison)
    found.wait_for_input()
    return poison


def malformed_are(found: Stand, poison: list[Record]) -> None:
    """Assert that these records are the letters `malformed`, with their bytes."""
    letters = found.letters("malformed")
    assert Counter(value for _, value in letters) == Counter(record.value for record in poison)
    details = " / ".join(detail for detail, _ in letters)
    assert f"the registry has no schema {NO_SUCH_ID}" in details
    assert ("no schema id of four or eight bytes" if found.in_header else "not in the wire format") in details


def finished(found: Stand, keys: list[str], schema_id: int) -> None:
    """Assert that all came out, once, and the outputs with a schema under this id."""
    found.complete()
    verdict.assert_delivery_agrees(found.pipeline.dsn)
    assert found.outputs(PAGES) == Counter((key.encode(), told_of(key)) for key in keys)
    carts = found.outputs(CARTS)
    assert all((value or b"").startswith(framed(schema_id, b"")) for _, value in carts)
    if schema_id == NO_ID:
        assert not carts
        return
    hexadecimal = [(value or b"").hex() for _, value in carts.elements()]
    shown = run_command("spark_job", "decode", *hexadecimal, variables=found.pipeline.variables)
    assert shown.returncode == 0, shown.stderr
    totals = sorted((json.loads(line) for line in shown.stdout.splitlines()), key=lambda each: each["key"])
    assert totals == [total_of(key) for key in sorted(keys)]


def refused(found: Stand, encode: Callable[..., bytes], words: str) -> None:
    """Assert that an output whose schema the registry refuses ends the job, in the registry's words, and leaves nothing."""
    before = found.pipeline.written()
    found.feed(encode, with_shop(clicks_of(REFUSED)))
    assert found.pipeline.job.wait() == 16, found.pipeline.job.tail()
    assert words in found.pipeline.job.log(), found.pipeline.job.tail()
    assert "auto_register is off by default" in found.pipeline.job.log()
    assert found.pipeline.written() == before
