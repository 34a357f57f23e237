"""What an exception says: something of the schema or of the value that was read, or something of the machine.

A decoder's libraries raise of many kinds for what a stranger wrote. Whatever they raise is a fact about it, and so a verdict, the same at
every time. Want of memory, files or a package, and a registry that is away, are none: the task fails, and is tried again.
"""

from service.formats.writer import RegistryAwayError, RegistryRefusedError, SchemaUnusableError

_OF_THE_MACHINE = (MemoryError, OSError, ImportError, RegistryAwayError, RegistryRefusedError)


def fault(error: Exception, what: str = "") -> str:
    """Return what is wrong with what was read. `what`: put in front of an error that is none of our own.

    Raises the error again where it is the machine's.
    """
    if isinstance(error, _OF_THE_MACHINE):
        raise error
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - some quote a schema, which may be nested too deeply for that
        text = "it cannot be shown"
    if not what or isinstance(error, SchemaUnusableError):
        return text
    return f"{what}: {type(error).__name__}: {text}"
