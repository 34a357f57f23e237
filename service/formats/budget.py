"""Bounds on one decoded value, whatever a few of its bytes claim. Every decoder has the same bounds; beyond them, it is no value."""

from typing import Final

MOST_LEVELS: Final = 200
"""Values that nest deeper are refused: the decoders of whole values could not go much further."""
MORE_FOR_EACH_BYTE: Final = 15
MORE: Final = 1_000
MOST_MORE: Final = 1_000_000
MOST_DECIMAL_BYTES: Final = 1_000
"""Of an Avro decimal, which takes time by their square."""
MOST_NAME_CHARS: Final = 1_000
"""Of the names of fields and of an enum's symbols: they take no byte in a value, or one or two. And of what stands in front of other names,
a namespace, a package or a message: the libraries keep the full name of each.
"""
MOST_TEXT: Final = 1 << 20
"""Characters of a value as text for people beyond 64 for each of its bytes: names of fields take none of these."""


def most_values(size: int) -> int:
    """Return how many values (fields, items, entries, records) may come out of so many bytes: one for each, and some that have none."""
    return size + min(MORE_FOR_EACH_BYTE * size + MORE, MOST_MORE)
