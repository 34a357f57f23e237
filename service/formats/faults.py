"""Tells faults of a schema or value from failures of the machine.

A decoder's libraries raise many kinds of exceptions for foreign input. Each follows from the input, so it is a verdict that never changes.
A lack of memory, files or a package, and an unavailable registry, are no verdict: the task fails and is tried again.
"""

from service.formats.writer import RegistryAwayError, RegistryRefusedError, SchemaUnusableError

_OF_THE_MACHINE = (MemoryError, OSError, ImportError, RegistryAwayError, RegistryRefusedError)


def fault(error: Exception, what: str = "") -> str:
    """Return the fault of the input; raise the error again if it is the machine's. `what` precedes the text of a library's error."""
    if isinstance(error, _OF_THE_MACHINE):
        raise error
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - some quote a schema, which may be nested too deeply for that
        text = "it cannot be shown"
    if not what or isinstance(error, SchemaUnusableError):
        return text
    return f"{what}: {type(error).__name__}: {text}"
