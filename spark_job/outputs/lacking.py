"""Tell which errors mean that the machine lacks memory, descriptors, threads or room on a disk.

transform_failures.py checks exceptions; failures/ reads a worker's errors as text.
"""

import errno
from collections.abc import Mapping

from service.errors import BatchTooLargeError, DiskFullError, ExhaustedError, OutboxError

OF_ERRNO: Mapping[int, type[OutboxError]] = {
    errno.ENOMEM: BatchTooLargeError,
    errno.ENOSPC: DiskFullError,
    errno.EDQUOT: DiskFullError,
    errno.EMFILE: ExhaustedError,
    errno.ENFILE: ExhaustedError,
    # fork() raises it if no process or thread may be added
    errno.EAGAIN: ExhaustedError,
}
"""{errno: the error that ends the attempt}"""
NO_THREAD = "can't start new thread"
"""Python's message of a RuntimeError."""


def lacking(error: BaseException) -> type[OutboxError] | None:
    """Return the error that ends the attempt if the machine lacks a resource; None otherwise. Ignores the causes of `error`."""
    if isinstance(error, MemoryError):
        return BatchTooLargeError
    if isinstance(error, OSError):
        return OF_ERRNO.get(error.errno or 0)
    if isinstance(error, RuntimeError) and error.args == (NO_THREAD,):
        return ExhaustedError
    return None
