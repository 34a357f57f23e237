"""What stops the assembler. A bad record never does: it becomes a dead letter."""


class AssemblyError(Exception):
    """The assembler cannot continue."""


class DamagedStateError(AssemblyError):
    """What was kept of the open sessions is not what was written; they can be found again in Kafka."""


class InputSchemaError(AssemblyError):
    """The table of new records lacks a column or has one of another type."""
