"""Tells faults of the schema or value that was read from failures of the machine.

A decoder's libraries raise exceptions of many kinds for foreign input. Each is a fact about the input, and so a verdict, the same every
time. A lack of memory, files or a package, and an unavailable registry, are no verdict: the task fails, and is tried again.
"""

from service.formats.writer import RegistryAwayError, RegistryRefusedError, SchemaUnusableError

_OF_THE_MACHINE = (MemoryError, OSError, ImportError, RegistryAwayError, RegistryRefusedError)


def fault(error: Exception, what: str = "") -> str:
    """Return the fault of the input. `what` precedes the text of a library's error. Raises the error again if it is the machine's."""
    if isinstance(error, _OF_THE_MACHINE):
        raise error
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - some quote a schema, which may be nested too deeply for that
        text = "it cannot be shown"
    if not what or isinstance(error, SchemaUnusableError):
        return text
    return f"{what}: {type(error).__name__}: {text}"
