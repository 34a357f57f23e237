"""The errors that end a command with an explanation instead of a traceback.

Every message names what happened, the value, and the command or setting that mends it. The exit code tells a supervisor whether a
restart can help (docs/operations.md lists the codes).
"""


class OutboxError(Exception):
    """Something that the person who runs the command must know and can mend."""

    exit_code = 1


class SettingsError(OutboxError):
    """A setting is missing, unknown or wrong."""

    exit_code = 2


class SchemaError(OutboxError):
    """The outbox schema is missing or of another revision than this code."""

    exit_code = 3


class FencedError(OutboxError):
    """Another run owns this work now; nothing was written."""

    exit_code = 4


class ContinuityError(OutboxError):
    """Checkpoint, Postgres or Kafka moved apart; going on could lose or repeat events."""

    exit_code = 5


class UnavailableError(OutboxError):
    """A server did not answer in time; trying again may help."""

    exit_code = 6
