"""The errors that end a command with an explanation instead of a traceback.

Every message names what happened, the value, and the command or setting that corrects it. This module defines the exit codes
(docs/operations.md says what to do about each), and whether a process may try again by itself. Only the exit codes of single commands and
of Spark's jars are beside the code that raises them.
"""

import re
from pathlib import Path
from traceback import walk_tb
from typing import Any


class OutboxError(Exception):
    """Something that the person who runs the command must know and can correct."""

    exit_code = 1
    may_pass = False
    """Whether another attempt may succeed: a server comes back, or a smaller batch fits."""


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
    """Postgres, Kafka and the settings disagree; continuing could lose or repeat events."""

    exit_code = 5


class UnavailableError(OutboxError):
    """A server did not answer in time; trying again may help."""

    exit_code = 6
    may_pass = True


class ReadOnlyServerError(UnavailableError):
    """No server of the DSN takes writes: a standby is not promoted yet, or an administrator has made the server read-only."""


READ_ONLY = (
    "this Postgres is a standby or read-only: {what}. Name every server in [postgres] dsn (OUTBOX_POSTGRES__DSN), with "
    "target_session_attrs=read-write"
)
"""The message for a statement that such a server refuses."""


class DatabaseMissingError(SchemaError, UnavailableError):
    """The server answers but has no such database. At the start it must be created; later it may be being restored from a backup."""


class SecretUnreadableError(SettingsError, UnavailableError):
    """A file that holds a secret cannot be read. At the start the setting is wrong; later the file may be about to be replaced."""


class HostUnknownError(SettingsError, UnavailableError):
    """No host of that name exists. At the start the name is wrong; later the name server may be."""


class OptionsRefusedError(SettingsError, UnavailableError):
    """Kafka's client refuses its options. At the start they are wrong; later a file that they name may be about to be replaced."""


class MovedError(ContinuityError):
    """A server's data has changed under this run. The next start checks again and names the decision that a person has to make."""

    may_pass = True


class RefusedError(OutboxError):
    """A server refuses a request: credentials, a right, a table or a constraint are not as the service expects."""

    exit_code = 16


class CredentialsRefusedError(RefusedError, UnavailableError):
    """A server refuses the credentials or the certificate. At the start they are wrong; later they may be about to be replaced."""


WRONG_AT_THE_START = (
    DatabaseMissingError,
    SecretUnreadableError,
    CredentialsRefusedError,
    HostUnknownError,
    OptionsRefusedError,
)
"""Wrong settings in a process that has never started. Later, a database may be being restored, or a secret about to change."""


class JobFailedError(OutboxError):
    """The Spark query failed for a reason that this job does not know."""

    exit_code = 10
    may_pass = True


class TransformFailedError(OutboxError):
    """The transform raised and `[transform] on_error` is "stop"."""

    exit_code = 11


class BatchTooLargeError(OutboxError):
    """A batch did not fit in memory; the next attempt takes a smaller one."""

    exit_code = 13
    may_pass = True


class DiskFullError(OutboxError):
    """No space is left for Spark's work files."""

    exit_code = 14
    may_pass = True


class SparkLostError(OutboxError):
    """The JVM in which Spark runs is gone."""

    exit_code = 15
    may_pass = True


class WorkerDiedError(OutboxError):
    """Spark's Python workers or executors ended by themselves, several times in one batch."""

    exit_code = 17
    may_pass = True


class SmallestBatchError(OutboxError):
    """Not even a batch of one event succeeds."""

    exit_code = 20


class WorkerCodeChangedError(OutboxError):
    """A worker has other code than the run."""

    exit_code = 18


class DefectError(OutboxError):
    """The job's own code raised an unexpected exception."""

    exit_code = 21
    may_pass = True


class ExhaustedError(OutboxError):
    """No more descriptors or threads are available: another process may hold them."""

    exit_code = 22


class SparkStartError(SparkLostError):
    """Spark's JVM did not start."""


def reason_of(error: BaseException) -> str:
    """Return an error's text for places that have more readers than this process' log, such as a row or `/readyz`.

    It quotes no row and no value. Of a foreign error whose text may quote one, it gives only the kind and the line that raised it.
    """
    name = type(error).__name__
    if isinstance(error, OutboxError):
        return _first_part(error)
    if isinstance(error, OSError):
        return ": ".join(part for part in (name, error.strerror, error.filename) if isinstance(part, str))
    if type(error).__module__.partition(".")[0] == "psycopg":
        return _of_postgres(error) or name
    return name + "".join(
        f" at {Path(frame.f_code.co_filename).name}, line {line}"
        for frame, line in list(walk_tb(error.__traceback__))[-1:]
    )


def _of_postgres(error: Any) -> str:
    """Return the first part of Postgres' text: the other parts may quote a row. "" for class 22 (data exceptions): that part may quote a
    value.
    """
    if (error.sqlstate or "").startswith("22") or (error.sqlstate is None and "Data" in type(error).__name__):
        return ""
    return (error.diag.message_primary or _first_part(error)).strip()


def _first_part(error: BaseException) -> str:
    return re.split(r"\n(?:DETAIL|CONTEXT)", str(error), maxsplit=1)[0].strip()
