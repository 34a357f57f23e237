"""A pipeline whose events have a format: clicks of some visitors in it, and what must come out of them in each."""

import select
import socket
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import orjson
from confluent_kafka import Producer

from tests.support.pipeline.expectation import Expectation
from tests.support.pipeline.pipeline import Pipeline
from tests.support.proxies.tcp import CHUNK_BYTES, TcpProxy
from tests.support.reading import end_offsets
from tests.support.schemas.clicks import Encode, registered
from tests.support.schemas.registry import Registry
from tests.support.schemas.transforms import HERE


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
