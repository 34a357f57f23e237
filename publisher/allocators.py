"""How a publisher's memory is managed: a transaction makes some 100,000 small objects that live as long as it does, and no cycles."""

import ctypes
import gc

_NEW_OBJECTS = 100_000
_M_MXFAST = 1


def suit_transactions() -> None:
    """Set Python's and the C library's allocator once for the process.

    - Python looks for cycles after 100,000 new containers instead of 700, and never again through what the start has made: through rows on
      their way there is nothing to be found.
    - glibc keeps small freed blocks aside and joins all of them whenever a large one is freed, which each chunk of rows and each batch of
      librdkafka's is. It joins them as they are freed instead (mallopt(3), M_MXFAST). Another C library is left as it is.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS, *gc.get_threshold()[1:])
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    mallopt(_M_MXFAST, 0)
