"""The digest of the open sessions: a sum over them, so that an update costs only as much as what changed.

Each entry of the table has a hash of 128 bits over all its columns, as two numbers of 64 bits. The digest covers the sum of the entries'
hashes (each number modulo 2**64), their count, and what the clock needs. Equal entries have equal digests,
whatever their order and their segments. The digest finds faults, not forgery: docs/decisions/0045.
"""

import struct
from functools import cache
from typing import NamedTuple

import mmh3
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_job.sessions.state.digest_form import DIGEST_FORM
from spark_job.sessions.state.open_sessions import OpenSessions

Unsigned = npt.NDArray[np.uint64]

_MODULUS = 1 << 64
_SEED = 1
"""With the seed 0, the hash of an empty text would be zeros, as that of NULL is."""
_BLOCK = 1 << 14
"""Entries that are hashed at a time, so that intermediate results stay in the processor's caches."""


class EntrySum(NamedTuple):
    """The sum of some entries' hashes. Sums of disjoint sets of entries can be added and subtracted."""

    low: int = 0
    high: int = 0
    entries: int = 0

    @classmethod
    def of(cls, hashes: Unsigned) -> "EntrySum":
        """Return the sum of entries. `hashes`: from `entry_hashes`."""
        low, high = hashes.sum(axis=0, dtype=np.uint64).tolist() if len(hashes) else (0, 0)
        return cls(low, high, len(hashes))

    def plus(self, other: "EntrySum") -> "EntrySum":
        """Return the sum of both."""
        return EntrySum(
            (self.low + other.low) % _MODULUS,
            (self.high + other.high) % _MODULUS,
            self.entries + other.entries,
        )

    def minus(self, other: "EntrySum") -> "EntrySum":
        """Return the sum without the other's entries."""
        return EntrySum(
            (self.low - other.low) % _MODULUS,
            (self.high - other.high) % _MODULUS,
            self.entries - other.entries,
        )

    def digest(self, last: bytes) -> str:
        """Return the form and 32 hex digits; empty if there are no entries. `last`: what the clock needs, in its canonical form."""
        if not self.entries:
            return ""
        return DIGEST_FORM + mmh3.mmh3_x64_128_digest(struct.pack("<QQq", *self) + last).hex()


def text_hashes(column: pa.Array) -> Unsigned:
    """Return two numbers for each value of a large string or binary array; zeros for NULL only."""
    if column.null_count == len(column):
        return np.zeros((len(column), 2), np.uint64)
    values = column.cast(pa.large_binary()).to_pylist()
    hashed = b"".join(
        [bytes(16) if value is None else mmh3.mmh3_x64_128_digest(value, _SEED) for value in values]
    )
    return np.frombuffer(hashed, "<u8").reshape(-1, 2)


def entry_hashes(sessions: OpenSessions, keys: Unsigned) -> Unsigned:
    """Return two numbers for each entry, which depend on all its columns. `keys`: the hashes of the keys.

    Each number of an entry (two for a text) is mixed by a bijection; both results are sums of the mixed numbers with odd factors. So
    entries that differ in only one of these numbers always have different hashes.
    """
    if len(sessions) > _BLOCK:
        blocks = [(low, low + _BLOCK) for low in range(0, len(sessions), _BLOCK)]
        return np.concatenate(
            [entry_hashes(sessions.slice(low, high), keys[low:high]) for low, high in blocks]
        )
    columns = [keys]
    columns += [
        text_hashes(column) for name, column in sessions.columns() if name != "key" and _is_text(column)
    ]
    numbers = [column for _, column in sessions.columns() if not _is_text(column)]
    mixed = np.concatenate([*(column.T for column in columns), [each.astype(np.uint64) for each in numbers]])
    salts, factors = _constants(len(mixed))
    mixed ^= salts
    _mix(mixed)
    hashes = factors @ mixed
    _mix(hashes)
    return np.ascontiguousarray(hashes.T)


def _is_text(column: object) -> bool:
    return isinstance(column, pa.Array)


def _mix(numbers: Unsigned) -> None:
    """Spread the bits of each number over all of it (the finaliser of MurmurHash3, a bijection), in place."""
    for shift, factor in ((33, 0xFF51AFD7ED558CCD), (33, 0xC4CEB9FE1A85EC53)):
        numbers ^= numbers >> np.uint64(shift)
        numbers *= np.uint64(factor)
    numbers ^= numbers >> np.uint64(33)


@cache
def _constants(count: int) -> tuple[Unsigned, Unsigned]:
    """Return one salt for each of `count` columns, as a column, and two odd factors for each, as two rows."""
    numbers = np.arange(1, 3 * count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    _mix(numbers)
    return numbers[:count, None], numbers[count:].reshape(2, count) | np.uint64(1)
