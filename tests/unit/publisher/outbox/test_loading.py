"""Text arrays that repeat are read once, and each as it is."""

import struct
import tracemalloc

from psycopg.adapt import Transformer
from psycopg.pq import Format

from publisher.outbox.loading import RepeatedArrayLoader


def stored(values: list[str]) -> bytes:
    """A text[] as Postgres sends it."""
    data = struct.pack(">iii", 1, 0, 25) + struct.pack(">ii", len(values), 1)
    return data + b"".join(struct.pack(">i", len(value.encode())) + value.encode() for value in values)


def test_the_same_array_is_the_same_list_and_another_is_another() -> None:
    loader, plain = RepeatedArrayLoader(1009), Transformer().get_loader(1009, Format.BINARY)
    once, again = loader.load(memoryview(stored(["a", "b"]))), loader.load(stored(["a", "b"]))
    assert once is again
    for n in range(3_000):
        values = [f"topic-{n}"] * (n % 5)
        assert loader.load(stored(values)) == plain.load(stored(values)) == values
    assert loader.load(stored(["a", "b"])) == once == ["a", "b"]


def test_arrays_of_many_different_sizes_take_little_memory() -> None:
    """One session of each size, as a producer likes: what is remembered of them must not grow with each."""
    loader = RepeatedArrayLoader(1009)
    tracemalloc.start()
    try:
        for n in range(120):
            loader.load(stored(["topic"] * (5_000 + n)))
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 16 << 20
