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
    """Postgres, Kafka and the settings do not tell one story; going on could lose or repeat events."""

    exit_code = 5


class UnavailableError(OutboxError):
    """A server did not answer in time; trying again may help."""

    exit_code = 6


class DatabaseMissingError(SchemaError, UnavailableError):
    """The server answers and has no such database. At the start it has to be made; later it may be on its way back from a backup."""


class SecretUnreadableError(SettingsError, UnavailableError):
    """A file that holds a secret cannot be read. At the start the setting is wrong; later the file may be about to be replaced."""


class HostUnknownError(SettingsError, UnavailableError):
    """No host of that name exists. At the start the name is wrong; later the name server may be."""


class MovedError(ContinuityError):
    """A server's data is not what this run knew of it; the next start checks again, and says what has to be decided."""


class RefusedError(OutboxError):
    """A server refuses what a service does: the credentials, a right, a table or a constraint is not as it expects."""

    exit_code = 16


class CredentialsRefusedError(RefusedError, UnavailableError):
    """A server refuses the credentials or the certificate. At the start they are wrong; later they may be about to be replaced."""


def reason_of(error: Exception) -> str:
    """Return what an error says, for logs and people. Without Postgres' detail, which may quote a row and with it a session key."""
    return str(error).partition("\nDETAIL")[0].strip()
