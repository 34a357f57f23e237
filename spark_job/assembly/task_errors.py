"""Let a task raise only exceptions whose text quotes no event: Spark gives the text to the driver, which stores it in `outbox.run`.

In Spark's text an exception's message cannot be told from what surrounds it, because the message may have line feeds. So foreign exceptions
are replaced here. The traceback keeps their frames.
"""

import errno
import os
import re
import socket
from collections.abc import Iterator
from typing import TypeVar

from spark_job.outputs.lacking import NO_THREAD

T = TypeVar("T")

_OURS = ("service", "spark_job", "contract", "spark_outbox")
_KEPT = (*_OURS, "pyspark", "py4j", "cimpl")
"""Packages whose messages quote no event: ours, Spark's, and Kafka's client."""
_OF_LOADER = re.compile(r"\S+: failed to map segment from shared object[^\n]*")


class TaskRaisedError(Exception):
    """A task raised an exception of this kind, neither ours nor the system's. failures/spark_text.py knows this class by its name."""


def without_quotes(rows: Iterator[T]) -> Iterator[T]:
    """Yield what a task yields. Raises what it raises, or an exception that quotes neither an event nor a file's name."""
    try:
        yield from rows
    except GeneratorExit:
        raise
    except BaseException as error:
        shown = _shown(error)
        if shown is error:
            raise
        raise shown.with_traceback(error.__traceback__) from None


def _shown(error: BaseException) -> BaseException:
    package = type(error).__module__.partition(".")[0]
    if package in _OURS and len(error.args) == 1 and isinstance(text := error.args[0], str):
        # It may quote a topic or a server's answer, which must not look like a traceback.
        error.args = (" ".join(text.split()),)
    if package in _KEPT or isinstance(error, ImportError):
        return error
    if isinstance(error, OSError):
        if isinstance(error, socket.gaierror) or _OF_LOADER.fullmatch(str(error)):
            return error
        if error.errno is not None and error.errno in errno.errorcode:
            return OSError(error.errno, os.strerror(error.errno))
    if isinstance(error, RuntimeError) and error.args == (NO_THREAD,):
        return error
    return TaskRaisedError(_kind(type(error)))


def _kind(kind: type) -> str:
    """Return the name as a traceback gives it."""
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
