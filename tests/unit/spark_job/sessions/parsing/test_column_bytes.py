"""Columns of what producers chose: whatever they choose, a column is hashed in one pass."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_job.sessions.assembler import assemble
from spark_job.sessions.parsing.column_bytes import as_dictionary, hidden
from spark_job.sessions.settings import AssemblySettings
from spark_job.sessions.state.open_state import OpenState

COUNT = 5_000
_FACTORS = 11400714785074694791, 14029467366897019727
"""Of Arrow's hash of 16 bytes: (last half * first factor) ^ (first half * second factor)."""


@pytest.fixture(scope="module")
def colliding() -> list[str]:
    """Session keys of 16 characters that have one hash for Arrow."""
    rng, found = np.random.default_rng(1), dict[bytes, None]()
    inverse = np.uint64(pow(_FACTORS[0], -1, 1 << 64))
    while len(found) < COUNT:
        first = rng.integers(48, 58, (1 << 18, 8), np.uint8).view("<u8")
        last = (np.uint64(1) ^ first * np.uint64(_FACTORS[1])) * inverse
        keys = np.concatenate([first, last], axis=1).view(np.uint8)
        found |= dict.fromkeys(map(bytes, keys[((keys > 31) & (keys < 127)).all(axis=1)]))
    return [key.decode() for key in found][:COUNT]


@given(st.lists(st.none() | st.text(max_size=20)), st.data())
def test_a_dictionary_is_that_of_arrow(values: list[str | None], data: st.DataObject) -> None:
    begin = data.draw(st.integers(0, len(values)))
    column = pa.array(values, pa.large_string()).slice(begin)
    assert as_dictionary(column).equals(column.dictionary_encode())
    assert hidden(column).is_null().equals(column.is_null())


def test_what_is_hidden_is_found_by_what_is_hidden(colliding: list[str]) -> None:
    keys = pa.array([*colliding, None], pa.large_string())
    places = pc.index_in(hidden(keys), value_set=hidden(keys.slice(0, COUNT)))
    assert places.to_pylist() == [*range(COUNT), None]


def test_keys_of_one_hash_are_sessions_of_their_own(colliding: list[str]) -> None:
    def records(kind: str, offset: int) -> pa.Table:
        values = [b'{"event_type":"%s"}' % kind.encode()] * COUNT
        columns = {"offset": pa.array(range(offset, offset + COUNT), pa.int64())}
        columns |= {"ts": pa.array([0] * COUNT, pa.int64()), "value": pa.array(values, pa.binary())}
        return pa.table(columns | {"key": pa.array([key.encode() for key in colliding], pa.binary())})

    rules = AssemblySettings(key_path=None)
    opened = assemble(OpenState.empty(), records("start_event", 0), rules)
    closed = assemble(opened.state, records("end_event", COUNT), rules)
    assert [session.key for session in closed.closed] == colliding
