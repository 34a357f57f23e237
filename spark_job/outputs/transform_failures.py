"""Run the transform on one session, and decide who is at fault if it raises.

- The session: for any other exception but KeyboardInterrupt and GeneratorExit, even SystemExit or a panic of Rust, and for outputs that
  cannot be stored. The session becomes a dead letter `transform_failed`, or with `[transform] on_error = "stop"` the job ends
  (assembly/task.py).
- A schema registry that refuses or does not answer, even if the transform caught the error.
- The machine, if it lacks memory, descriptors, threads or room on a disk, even if the transform wrapped the error.

The last two end the attempt, and the session gets no letter: failures/ explains the error, supervisor/ decides whether another attempt
follows.
"""

import traceback
from collections.abc import Callable, Iterable

from service.formats.writer import RegistryAwayError, RegistryRefusedError
from spark_job.api import OutputEvent, Session
from spark_job.outputs.encoding import EncodedOutputs
from spark_job.outputs.lacking import lacking
from spark_job.outputs.schemas import OutputSchemaRefusedError
from spark_job.outputs.transform import Transform
from spark_job.sessions.session import Decode, check_registry

_TRACEBACK_CHARS = 7_500
CUT = "[only the end of the traceback]\n"
"""The beginning of a traceback that was cut, which could else begin with any text that the exception quotes."""


class TransformRaisedError(Exception):
    """The transform raised, or returned what cannot be stored, and the session is at fault. `cause`: what was raised."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__(cause)
        self.cause = cause

    def __str__(self) -> str:
        try:
            text = str(self.cause)
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException:  # noqa: BLE001 - the text of a user's class may raise anything, too
            text = "<exception str() failed>"  # Python's words in a traceback
        return f"{type(self.cause).__name__}: {text}"


class TransformStoppedError(Exception):
    """The transform raised and `[transform] on_error` is "stop". failures/spark_text.py knows this class by its name in Spark's text."""


def run_transform(
    transform: Transform,
    session: Session,
    decode: Decode | None,
    encode: Callable[[Iterable[OutputEvent]], EncodedOutputs],
) -> EncodedOutputs:
    """Return the outputs of a session. `decode`: the decoder of its events' values. `encode`: encodes outputs within the job's limits.

    Raises TransformRaisedError if the session is at fault; otherwise RegistryAwayError, RegistryRefusedError, OutputSchemaRefusedError, or
    the error of the machine.
    """
    try:
        outputs = encode(transform(session))
        check_registry(decode)
    except (
        RegistryAwayError,
        RegistryRefusedError,
        OutputSchemaRefusedError,
        KeyboardInterrupt,
        GeneratorExit,
    ):
        raise
    except BaseException as error:  # a user's transform may raise anything
        check_registry(decode)
        if (of_machine := _of_machine(error)) is not None:
            raise of_machine from None
        raise TransformRaisedError(error) from error
    return outputs


def failure_text(error: BaseException) -> str:
    """Return the traceback of what a transform raised; if it is long, CUT and its end."""
    text = "".join(traceback.format_exception(error))
    return text if len(text) <= _TRACEBACK_CHARS else CUT + text[-_TRACEBACK_CHARS:]


def _of_machine(error: BaseException) -> BaseException | None:
    """Return what was raised because the machine lacks a resource, even if it was wrapped; None otherwise."""
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        if lacking(cause) is not None:
            return cause
        seen.add(id(cause))
        cause = cause.__cause__ or cause.__context__
    return None
