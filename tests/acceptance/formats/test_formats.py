"""Sessions of events in every format come out the same; a registry that is away or refuses costs nothing."""

import json
import select
import socket
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import orjson
import pytest
from confluent_kafka import Producer

from devstack.kafka import KafkaServer
from service.formats.wire import framed
from tests.support.pipeline import verdict
from tests.support.pipeline.expectation import Expectation
from tests.support.pipeline.pipeline import Pipeline
from tests.support.pipeline.transforms import CARTS, PAGES
from tests.support.processes.commands import run_command
from tests.support.proxies.tcp import CHUNK_BYTES, TcpProxy
from tests.support.reading import end_offsets
from tests.support.schemas.clicks import Encode, registered
from tests.support.schemas.registry import Registry, registry
from tests.support.schemas.transforms import FAILS, HERE, REFUSED, TOTALS


class Link(TcpProxy):
    """Between clients and one server."""

    def __init__(self, host: str, port: int) -> None:
        """`host`, `port`: of the server."""
        super().__init__()
        self._server = host, port
        self._is_down = False

    @contextmanager
    def down(self) -> Iterator[None]:
        """Within the block all connections are cut, and new ones as soon as they are made."""
        self._is_down = True
        self.cut()
        try:
            yield
        finally:
            self._is_down = False

    def _server_address(self) -> tuple[str, int]:
        return self._server

    def _forward(self, client: socket.socket, server: socket.socket) -> None:
        other = {client: server, server: client}
        while not self._is_down:
            for ready in select.select(list(other), [], [])[0]:
                data = ready.recv(CHUNK_BYTES)
                if not data:
                    return
                other[ready].sendall(data)


ID_HEADER = "apicurio.value.globalId"
BEGUN = datetime.now(UTC).replace(microsecond=0)
"""Kafka would soon delete records of an old time."""
_STEPS = ("start", "entry", "entry", "end")
_HEAD_BYTES = 5

Event = dict[str, Any]


def clicks_of(key: str) -> list[Event]:
    """A visitor's events, oldest first."""
    return [
        {
            "event_type": kind,
            "session_key": key,
            "page": f"/{kind}/é" if kind == "entry" else None,
            "price_cents": 100 * number + len(key),
            "tags": ["a"] * number,
            "at": BEGUN + timedelta(milliseconds=1_500 * number + 7),
            "event_id": f"{key}-{number}",
        }
        for number, kind in enumerate(_STEPS)
    ]


def told_of(key: str) -> bytes:
    """What every transform sends to PAGES of this visitor."""
    events = clicks_of(key)
    said = [[event[name] for name in ("event_type", "page", "price_cents", "tags")] for event in events]
    times = [event["at"].isoformat() for event in events]
    return orjson.dumps({"key": key, "types": _STEPS, "times": times, "said": said})


def total_of(key: str) -> Event:
    """What the transforms with a schema send to CARTS."""
    return {"key": key, "cents": sum(event["price_cents"] for event in clicks_of(key))}


@dataclass(frozen=True)
class Record:
    """A record of the input. `schema_id`: in its header."""

    value: bytes
    key: str | None = None
    schema_id: bytes | None = None


@dataclass(frozen=True)
class Stand:
    """The pipeline, the registry, and the way between them that can be cut. Services see the registry through it."""

    pipeline: Pipeline
    registry: Registry
    link: Link
    format: str
    in_header: bool

    def encoder(self, *, newer: bool = False) -> Encode:
        """Register the events' schema, or its next version; return what encodes by it."""
        return registered(self.registry, self.format, f"{self.pipeline.input}-value", newer=newer)

    def records(self, encode: Encode, events: Iterable[Event]) -> list[Record]:
        """The events as records."""
        found = []
        for event in events:
            value = encode({name: each for name, each in event.items() if each is not None})
            if self.in_header:
                found.append(
                    Record(value[_HEAD_BYTES:], event["session_key"], value[1:_HEAD_BYTES].rjust(8, b"\0"))
                )
            else:
                found.append(Record(value, event["session_key"]))
        return found

    def feed(self, encode: Encode, events: Sequence[Event], others: Iterable[Record] = ()) -> None:
        """Write events, and other records behind them; returns when Kafka has them."""
        producer = Producer(
            {"bootstrap.servers": self.pipeline.bootstrap, "partitioner": "murmur2_random", "linger.ms": 50}
        )
        for event, record in zip(events, self.records(encode, events), strict=True):
            headers = {"kind": event["event_type"].encode(), "id": event["event_id"].encode()}
            self._produce(producer, record, headers, int(event["at"].timestamp() * 1000))
        for record in others:
            self._produce(producer, record, {}, int(BEGUN.timestamp() * 1000))
        assert producer.flush(30) == 0
        producer.close()

    def _produce(self, producer: Producer, record: Record, headers: Mapping[str, bytes], ms: int) -> None:
        found: dict[str, bytes | str | None] = dict(headers)
        if record.schema_id is not None:
            found[ID_HEADER] = record.schema_id
        producer.produce(self.pipeline.input, record.value, record.key, timestamp=ms, headers=found)

    def wait_for_input(self) -> None:
        """Wait until the job has dealt with all that was written."""
        self.pipeline.wait_for_input(self._ends())

    def complete(self) -> None:
        """Wait until all of it is delivered."""
        self.pipeline.complete(self._ends())

    def outputs(self, topic: str) -> Counter[tuple[bytes, bytes | None]]:
        """(key, value) of all that consumers have got from a topic, whose name ends so."""
        self.pipeline.watcher.wait_until_all_read()
        name = self.pipeline.prefix + topic
        return Counter(
            (event.key, event.value) for event in self.pipeline.watcher.seen if event.topic == name
        )

    def letters(self, reason: str) -> list[tuple[str, bytes | None]]:
        """(detail, value of the first event) of the open dead letters of a reason."""
        return self.pipeline.ask(
            "SELECT detail, event_values[1] FROM outbox.dead_letter WHERE reason = %s AND state = 'open' ORDER BY detail",
            reason,
        )

    def _ends(self) -> Expectation:
        ends = end_offsets(self.pipeline.bootstrap, [self.pipeline.input], committed=True)
        return Expectation(ends={partition: end for (_, partition), end in ends.items()})


@contextmanager
def stand(
    where: tuple[str, str, str, Path],
    registry: Registry,
    format: str,
    transform: str,
    *,
    in_header: bool = False,
    **of_registry: bool,
) -> Iterator[Stand]:
    """A stand; the services do not run yet. `where`: (dsn, bootstrap, prefix, folder) of its pipeline.

    `of_registry`: settings of [schema_registry] beside those that say where it is.
    """
    session: dict[str, Any] = {"start": "start", "entry": "entry", "end": "end", "timeout_s": 3_600}
    if format == "bytes":
        session |= {"key": "key", "type": "header:kind", "event_id": "header:id", "time": "timestamp"}
    url = urlsplit(registry.url)
    with Link(str(url.hostname), int(url.port or 80)) as link:
        options = {
            "source": {"format": format} | ({"schema_id": f"header:{ID_HEADER}"} if in_header else {}),
            "session": session,
            "transform": {"function": f"{HERE}:{transform}"},
            "schema_registry": {"url": url._replace(netloc=f"127.0.0.1:{link.port}").geturl(), "timeout_s": 5}
            | of_registry,
            "restart": {"max_delay_s": 1.0},
        }
        with Pipeline(*where, options=options) as pipeline:
            yield Stand(pipeline, registry, link, format, in_header)


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
