"""Session keys as the outbox stores them: their greatest length, and the lane in which their rows are delivered."""

import mmh3

MAX_KEY_BYTES = 1024
"""Most bytes of a key in UTF-8. Longer keys would not fit the indexes; the constraint `session_output_key_bounds` enforces it."""

# Never change it: stored rows contain its results.
_SEED = 0x6C616E65


def lane_hash(key: bytes) -> int:
    """Return the hash, 0 to 2**32 - 1, of a session key's UTF-8 bytes. The key's lane is the hash modulo the number of lanes.

    The job stores the lane with every row; a requeue computes it for another lane count.
    """
    return int(mmh3.hash(key, _SEED, signed=False))
