"""Session keys as the outbox stores them: how long one may be, and in which lane its rows go out."""

import mmh3

MAX_KEY_BYTES = 1024
"""Of a key's UTF-8. Longer ones would not fit the indexes; `session_output_key_bounds` holds Postgres to it."""

# Rows are stored with what it gives: it never changes.
_SEED = 0x6C616E65


def lane_hash(key: bytes) -> int:
    """Return the hash, 0 to 2**32 - 1, of a session key's UTF-8 bytes whose remainder by the number of lanes is the key's lane.

    The job stores the lane with every row; a requeue computes it for another lane count.
    """
    return int(mmh3.hash(key, _SEED, signed=False))
