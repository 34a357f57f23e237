"""A cache of schemas: the least recently used is dropped first.

A registry's users choose how large schemas are, and how many are in use.
"""

import threading
from collections import OrderedDict
from collections.abc import Hashable, Iterator
from typing import Final, Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")

MOST_CHARS: Final = 16 << 20
"""Most characters of the schemas in a cache, or of the schemas that its values are derived from: two of the largest."""


class SchemaCache(Generic[Key, Value]):
    """Values, each with its schema's number of characters. The newest value stays, whatever its size. Thread-safe."""

    def __init__(self, most_chars: int = MOST_CHARS) -> None:
        self._kept: OrderedDict[Key, tuple[Value, int]] = OrderedDict()
        self._left = most_chars
        self._last: tuple[Key, Value] | None = None
        self._lock = threading.Lock()

    def get(self, key: Key) -> Value | None:
        """Return a value, or None if it is not cached."""
        last = self._last
        if last is not None and (last[0] is key or last[0] == key):
            return last[1]
        with self._lock:
            found = self._kept.get(key)
            if found is None:
                return None
            self._kept.move_to_end(key)
            self._last = key, found[0]
            return found[0]

    def put(self, key: Key, value: Value, chars: int) -> bool:
        """Keep a value. Return whether the cache was full."""
        with self._lock:
            self._left += self._kept.pop(key, (None, 0))[1] - chars
            self._kept[key] = value, chars
            self._last = key, value
            crowded = self._left < 0
            while self._left < 0 and len(self._kept) > 1:
                self._left += self._kept.popitem(last=False)[1][1]
            return crowded

    def __iter__(self) -> Iterator[Key]:
        return iter(list(self._kept))

    def __len__(self) -> int:
        return len(self._kept)
