"""Bounds on one decoded value: a few bytes of Avro or Protobuf may claim any size. Values beyond the bounds are refused."""

from typing import Final

MOST_LEVELS: Final = 200
"""Deeper values are refused: the decoders of whole values could not go much deeper."""
MORE_FOR_EACH_BYTE: Final = 15
MORE: Final = 1_000
MOST_MORE: Final = 1_000_000
MOST_DECIMAL_BYTES: Final = 1_000
"""Bytes of an Avro decimal: decoding it takes time by their square."""
MOST_NAME_CHARS: Final = 1_000
"""Characters of the name of a field or an enum's symbol, which takes at most two bytes of a value; and of a namespace, package or message,
which the libraries repeat in each full name.
"""
MOST_TEXT: Final = 1 << 20
"""Characters of a value's text for people, beyond 64 for each of its bytes: names of fields take no bytes."""


def most_values(size: int) -> int:
    """Return how many values (fields, items, entries, records) may be decoded from `size` bytes: one for each byte, and some that take
    none.
    """
    return size + min(MORE_FOR_EACH_BYTE * size + MORE, MOST_MORE)
