"""Confluent's wire format: a zero byte, the schema's id in four bytes (big-endian), then the value. One value at a time.

In a Protobuf value, the path to the message within its file follows the id: the number of indexes, then the indexes, all as zigzag varints.
A single zero stands for the first message.
"""

HEAD_BYTES = 5
_MAX_PATH = 100


class WireFormatError(ValueError):
    """The bytes are not in the wire format."""


def split(value: bytes) -> tuple[int, bytes]:
    """Return the schema's id and the bytes after it.

    Raises WireFormatError.
    """
    if len(value) < HEAD_BYTES or value[0] != 0:
        raise WireFormatError("the value does not begin with a zero byte and a schema id of four bytes")
    return int.from_bytes(value[1:HEAD_BYTES], "big"), value[HEAD_BYTES:]


def framed(schema_id: int, value: bytes) -> bytes:
    """Return the value after its schema's id."""
    return b"\0" + schema_id.to_bytes(4, "big") + value


def message_path(body: bytes) -> tuple[tuple[int, ...], bytes]:
    """Return the indexes of a Protobuf message within its file, and the message.

    Raises WireFormatError.
    """
    if body[:1] == b"\0":
        return (0,), body[1:]
    size, at = _zigzag(body, 0)
    if not 0 < size <= _MAX_PATH:
        raise WireFormatError(f"{size} message indexes")
    path = []
    for _ in range(size):
        index, at = _zigzag(body, at)
        path.append(index)
    return tuple(path), body[at:]


def _zigzag(body: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(body) and shift < 64:
        byte = body[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7
    raise WireFormatError("the message indexes are cut off")
