"""Errors that stop the assembler. A bad record does not stop it, but becomes a dead letter."""


class AssemblyError(Exception):
    """The assembler cannot continue."""


class DamagedStateError(AssemblyError):
    """The stored open sessions are not as they were written; they can be rebuilt from Kafka."""


class InputSchemaError(AssemblyError):
    """The table of new records lacks a column, a column has another type, or the offsets do not ascend."""
