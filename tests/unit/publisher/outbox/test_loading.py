"""Text arrays that repeat are read once, and each as it is."""

import struct

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
