"""How a process manages its memory, set once in its life. Another C library than glibc is left as it is."""

import ctypes
import gc
import time

_NEW_OBJECTS = 100_000
_COLLECT_S = 1.0
_collected_at = 0.0
_M_MXFAST, _M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = 1, -1, -3
_KEPT_BYTES = 1 << 30
_LARGEST_BYTES = 32 << 20
"""The most that glibc takes for M_MMAP_THRESHOLD."""


def suit_transactions() -> None:
    """For a publisher: a transaction makes some 100,000 small objects that live as long as it does, and no cycles.

    - Python looks for cycles after 100,000 new containers instead of 700, and never again through what the start has made: through rows on
      their way there is nothing to be found.
    - glibc keeps small freed blocks aside and joins all of them whenever a large one is freed, which each chunk of rows and each batch of
      librdkafka's is. It joins them as they are freed instead (mallopt(3), M_MXFAST).
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS, *gc.get_threshold()[1:])
    _mallopt({_M_MXFAST: 0})


def collect_after_failure() -> None:
    """End the circles that a failed attempt has left, once a second at most: they may hold clients, with their threads and connections.

    With `suit_transactions` Python would look for them only after 100,000 more objects, which an idle process never makes.
    """
    global _collected_at
    now = time.monotonic()
    if now - _collected_at >= _COLLECT_S:
        _collected_at = now
        gc.collect()


def suit_columns() -> None:
    """For a worker of Spark: each slice makes columns of megabytes, one after the other, and drops them.

    glibc takes each from the system and gives it back, so that the kernel fills the same pages with zeros again and again. It keeps them
    instead.
    """
    _mallopt({_M_TRIM_THRESHOLD: _KEPT_BYTES, _M_MMAP_THRESHOLD: _LARGEST_BYTES})


def give_back() -> None:
    """Give freed memory back to the system, that of threads' arenas too: glibc keeps it there otherwise."""
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return
    trim(0)


def _mallopt(options: dict[int, int]) -> None:
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    for option, value in options.items():
        mallopt(option, value)
