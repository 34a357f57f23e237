"""Sends records that no client would: a record batch, version 2, byte by byte, over a socket of its own (Kafka's protocol, KIP-98)."""

import gzip
import socket
import struct
from collections.abc import Callable, Sequence
from typing import NamedTuple

import pyarrow as pa

_CASTAGNOLI = 0x82F63B78
_PRODUCE, _VERSION = 0, 7
_ALL_REPLICAS = -1
_TIMEOUT_MS = 30_000


class RawRecord(NamedTuple):
    """A record. Header names are bytes: nothing says that they are UTF-8."""

    value: bytes | None
    key: bytes | None = None
    headers: Sequence[tuple[bytes, bytes | None]] = ()
    timestamp_ms: int = 0


def _snappy(data: bytes) -> bytes:
    # As Java's clients frame it: a header, then blocks with their lengths.
    block: bytes = pa.compress(data, "snappy", asbytes=True)
    return b"\x82SNAPPY\0" + struct.pack(">iii", 1, 1, len(block)) + block


CODECS: dict[str, tuple[int, Callable[[bytes], bytes]]] = {
    "none": (0, bytes),
    "gzip": (1, gzip.compress),
    "snappy": (2, _snappy),
    "lz4": (3, lambda data: pa.compress(data, "lz4", asbytes=True)),
    "zstd": (4, lambda data: pa.compress(data, "zstd", asbytes=True)),
}
"""{name: (number in the batch's attributes, how it compresses)}"""


def produce(
    bootstrap: str, topic: str, partition: int, records: Sequence[RawRecord], codec: str = "none"
) -> int:
    """Write one batch to a broker that leads the partition; return the first record's offset. Raises ValueError where it is refused."""
    batch = _batch(records, codec)
    body = struct.pack(">hhi", _PRODUCE, _VERSION, 1) + _text("raw")
    body += struct.pack(">hhii", -1, _ALL_REPLICAS, _TIMEOUT_MS, 1) + _text(topic)
    body += struct.pack(">iii", 1, partition, len(batch)) + batch
    host, _, port = bootstrap.rpartition(":")
    with socket.create_connection((host, int(port)), 30) as connection, connection.makefile("rb") as answers:
        connection.sendall(struct.pack(">i", len(body)) + body)
        (size,) = struct.unpack(">i", answers.read(4))
        answer = answers.read(size)
    # Correlation id, one topic with its name, one partition.
    error, offset = struct.unpack_from(">hq", answer, 4 + 4 + 2 + len(topic.encode()) + 4 + 4)
    if error:
        raise ValueError(f"Kafka refuses the batch with error code {error}")
    return int(offset)


def _batch(records: Sequence[RawRecord], codec: str) -> bytes:
    number, compress = CODECS[codec]
    times = [record.timestamp_ms for record in records]
    packed = b"".join(_record(place, record, times[0]) for place, record in enumerate(records))
    last, nobody = len(records) - 1, -1
    tail = struct.pack(
        ">hiqqqhii", number, last, times[0], max(times), nobody, nobody, nobody, len(records)
    ) + compress(packed)
    rest = struct.pack(">ibI", -1, 2, _crc32c(tail)) + tail
    return struct.pack(">qi", 0, len(rest)) + rest


def _record(place: int, record: RawRecord, base_ms: int) -> bytes:
    body = b"\0" + _varint(record.timestamp_ms - base_ms) + _varint(place)
    body += _bytes(record.key) + _bytes(record.value) + _varint(len(record.headers))
    for name, value in record.headers:
        body += _bytes(name) + _bytes(value)
    return _varint(len(body)) + body


def _varint(number: int) -> bytes:
    """Zigzag: of 64 bits, which a difference of two times may overflow."""
    number = (number + 2**63) % 2**64 - 2**63
    left, out = (number << 1) ^ (number >> 63), bytearray()
    while left >= 128:
        out.append(left & 127 | 128)
        left >>= 7
    return bytes([*out, left])


def _bytes(data: bytes | None) -> bytes:
    return _varint(-1) if data is None else _varint(len(data)) + data


def _text(text: str) -> bytes:
    return struct.pack(">h", len(text.encode())) + text.encode()


def _crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ _CASTAGNOLI if crc & 1 else crc >> 1
    return crc ^ 0xFFFFFFFF
