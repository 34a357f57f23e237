"""Just enough of Kafka's protocol: how messages are framed, and the one question that no client library asks."""

import socket
import struct
import time
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

from tests.support.proxies.tcp import Messages

_TIMEOUT_S = 10.0
_LOADING_S = 90.0
# COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE
_STARTING = {14, 15}


class Api(IntEnum):
    """Kinds of requests."""

    PRODUCE = 0
    FIND_COORDINATOR = 10
    INIT_PRODUCER_ID = 22
    ADD_PARTITIONS = 24
    END_TXN = 26
    LIST_TRANSACTIONS = 66

    @property
    def title(self) -> str:
        """As Kafka's documentation calls it."""
        return {
            0: "Produce",
            10: "FindCoordinator",
            22: "InitProducerId",
            24: "AddPartitionsToTxn",
            26: "EndTxn",
        }[self]


class Frames(Messages):
    """Each message has its length before it."""

    def _length_of_next(self, pending: bytes) -> int | None:
        return 4 + int.from_bytes(pending[:4], "big") if len(pending) >= 4 else None


def api_of(request: bytes) -> int:
    """Which kind of request a frame holds."""
    return int.from_bytes(request[4:6], "big")


def correlation_of_request(request: bytes) -> int:
    """The number that the answer will carry."""
    return int.from_bytes(request[8:12], "big")


def correlation_of_answer(answer: bytes) -> int:
    """The number of the request that this answers."""
    return int.from_bytes(answer[4:8], "big")


class OpenTransaction(NamedTuple):
    """What a coordinator knows of a transactional id. `state` as Kafka spells it: Ongoing, PrepareCommit, CompleteAbort ..."""

    transactional_id: str
    state: str


def list_transactions(bootstrap: str) -> list[OpenTransaction]:
    """Every transactional id that the brokers coordinate. Raises OSError when one does not answer.

    A broker that has just started still reads what it knew: it is asked again then.
    """
    return [found for address in bootstrap.split(",") for found in _list(address)]


def _list(address: str) -> list[OpenTransaction]:
    deadline = time.monotonic() + _LOADING_S
    while True:
        reader = _Reader(_ask(address)[8:])
        reader.skip_tags()
        _, error = reader.number(4), reader.number(2)
        if not error:
            return list(_listed(reader))
        if error not in _STARTING or time.monotonic() > deadline:
            raise ConnectionError(f"{address} answers error {error} instead of listing its transactions")
        time.sleep(0.1)


def _ask(address: str) -> bytes:
    # Header version 2: key, version, correlation id, client id, no tags. Body version 0: no filter of states nor of producers, no tags.
    request = struct.pack(">hhih5s", Api.LIST_TRANSACTIONS, 0, 1, 5, b"tests") + b"\0" + b"\1\1\0"
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), _TIMEOUT_S) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        frames = Frames(connection)
        while not (answers := list(frames.receive())):
            if frames.ended:
                raise ConnectionError(f"{address} closed the connection instead of listing its transactions")
    return answers[0]


def _listed(reader: "_Reader") -> Iterator[OpenTransaction]:
    for _ in range(reader.varint() - 1):
        reader.text()
    for _ in range(reader.varint() - 1):
        transactional_id, _, state = reader.text(), reader.number(8), reader.text()
        reader.skip_tags()
        yield OpenTransaction(transactional_id, state)


class _Reader:
    """Reads the flexible versions' types, one after the other."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def _take(self, count: int) -> bytes:
        self._at += count
        return self._data[self._at - count : self._at]

    def number(self, size: int) -> int:
        return int.from_bytes(self._take(size), "big", signed=True)

    def varint(self) -> int:
        value = shift = 0
        while True:
            (byte,) = self._take(1)
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def text(self) -> str:
        return self._take(self.varint() - 1).decode()

    def skip_tags(self) -> None:
        for _ in range(self.varint()):
            self.varint()
            self._take(self.varint())
