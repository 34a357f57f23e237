"""Which lane a session key belongs to: the job stores it with every row, and a requeue computes it for another lane count."""

import mmh3

# Rows are stored with what it gives: it never changes.
_SEED = 0x6C616E65


def lane_hash(key: bytes) -> int:
    """Return the hash, 0 to 2**32 - 1, of a session key's UTF-8 bytes whose remainder by the number of lanes is the key's lane."""
    return int(mmh3.hash(key, _SEED, signed=False))
