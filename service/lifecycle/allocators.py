"""How a process manages its memory. Other C libraries than glibc are left as they are."""

import ctypes
import gc
import time

_NEW_OBJECTS = 100_000
_COLLECT_S = 1.0
_collected_at = 0.0
_M_MXFAST, _M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = 1, -1, -3
_KEPT_BYTES = 1 << 30
_LARGEST_BYTES = 32 << 20
"""The greatest M_MMAP_THRESHOLD that glibc accepts."""


def suit_transactions() -> None:
    """Tune a publisher: a transaction makes some 100,000 small objects, which live as long as the transaction and form no cycles.

    - Python searches for cycles after 100,000 new containers instead of 700, and never again among the objects of the start: rows in
      transit have no cycles.
    - glibc keeps small freed blocks apart and joins all of them whenever a large one is freed, such as a chunk of rows or a batch of
      librdkafka. Now it joins each as it is freed (mallopt(3), M_MXFAST).
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS, *gc.get_threshold()[1:])
    _mallopt({_M_MXFAST: 0})


def collect_after_failure() -> None:
    """Collect the cycles that a failed attempt has left, at most once a second: they may hold clients, with their threads and connections.

    After `suit_transactions` Python would search for them only after 100,000 more objects, which an idle process never makes.
    """
    global _collected_at
    now = time.monotonic()
    if now - _collected_at >= _COLLECT_S:
        _collected_at = now
        gc.collect()


def suit_columns() -> None:
    """Tune a worker of Spark: each slice makes and drops columns of megabytes, one after the other.

    By default glibc takes each from the system and gives it back, so that the kernel zeroes the same pages again and again. Now it keeps
    them.
    """
    _mallopt({_M_TRIM_THRESHOLD: _KEPT_BYTES, _M_MMAP_THRESHOLD: _LARGEST_BYTES})


def give_back() -> None:
    """Return freed memory to the system, also from threads' arenas, where glibc would keep it."""
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
