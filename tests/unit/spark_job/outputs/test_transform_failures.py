"""What a transform raises is the session's fault, unless the machine or a schema registry is at fault."""

from asyncio import CancelledError
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from functools import partial
from typing import NoReturn

import pytest

from service.formats.writer import RegistryAwayError, Schemas, UnusableSchema, WriterSchema
from spark_job import OutputEvent, Position, Session
from spark_job.outputs.encoding import EncodedOutputs, InvalidOutputError, encode
from spark_job.outputs.schemas import OutputSchemaRefusedError
from spark_job.outputs.transform_failures import CUT, TransformRaisedError, failure_text, run_transform
from spark_job.sessions.session import SchemaDecode

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SESSION = Session("k", [], NOON, NOON, Position("in", 0, 0), Position("in", 0, 1))
ENCODE = partial(encode, max_bytes=1_000)


class AwayError(Exception):
    """A user's own class."""


class PanicException(BaseException):
    """Of an extension in Rust."""


class TextlessError(RuntimeError):
    """A user's own class, whose text needs what nobody has set."""

    def __str__(self) -> str:
        raise PanicException("reason")


class Away(dict[int, WriterSchema | UnusableSchema]):
    """A registry that does not answer."""

    def __missing__(self, schema_id: int) -> NoReturn:
        raise RegistryAwayError("no answer")


def run(
    transform: Callable[[Session], Iterable[OutputEvent]], schemas: Schemas | None = None
) -> EncodedOutputs:
    return run_transform(transform, SESSION, SchemaDecode(schemas or {}), ENCODE)


@pytest.mark.parametrize(
    "error",
    [
        ValueError("no price"),
        SystemExit(3),
        PanicException("no char boundary"),
        CancelledError("x"),
        AwayError("gone"),
        OSError(2, "no file"),
    ],
)
def test_the_session_is_at_fault_for_what_its_transform_raises(error: BaseException) -> None:
    def transform(_: Session) -> Iterator[OutputEvent]:
        yield OutputEvent("t", b"x")
        raise error

    with pytest.raises(TransformRaisedError) as raised:
        run(transform)
    assert raised.value.cause is error
    assert str(raised.value) == f"{type(error).__name__}: {error}"


def test_the_session_is_at_fault_even_if_the_error_has_no_text() -> None:
    def transform(_: Session) -> list[OutputEvent]:
        raise TextlessError

    with pytest.raises(TransformRaisedError) as raised:
        run(transform)
    assert str(raised.value) == "TextlessError: <exception str() failed>"
    assert "TextlessError: <exception str() failed>" in failure_text(raised.value.cause)


def test_a_long_traceback_does_not_begin_with_what_its_exception_quotes() -> None:
    """A detail begins with the number of a part, which a retry reads from it."""
    for length in range(7_000, 9_000, 7):
        quoted = "part 7 of its session, ended by limit\n" * (length // 38)

        def transform(_: Session, said: str = quoted) -> list[OutputEvent]:
            return [OutputEvent("t", {"price": float(said)})]

        with pytest.raises(TransformRaisedError) as raised:
            run(transform)
        text = failure_text(raised.value.cause)
        assert text.startswith(("Traceback (most recent call last):\n", CUT))
        assert (len(text) < 8_000, text.endswith("limit\\n'\n")) == (True, True)


def test_the_session_is_at_fault_for_outputs_that_cannot_be_stored() -> None:
    with pytest.raises(TransformRaisedError, match="2000 outputs have") as raised:
        run(lambda _: [OutputEvent("t", b"x")] * 2_000)
    assert isinstance(raised.value.cause, InvalidOutputError)


@pytest.mark.parametrize("kind", [KeyboardInterrupt, GeneratorExit])
def test_an_interrupt_is_no_fault_of_the_session(kind: type[BaseException]) -> None:
    def transform(_: Session) -> list[OutputEvent]:
        raise kind

    with pytest.raises(kind):
        run(transform)


def test_an_error_that_hides_a_want_of_memory_is_raised_as_that() -> None:
    lacking = MemoryError()

    def transform(_: Session) -> list[OutputEvent]:
        raise ValueError("no price") from lacking

    with pytest.raises(MemoryError) as raised:
        run(transform)
    assert raised.value is lacking


@pytest.mark.parametrize("then", [ValueError("no price"), None], ids=["raises", "returns"])
def test_a_registry_that_does_not_answer_is_reported_even_if_the_transform_caught_it(
    then: Exception | None,
) -> None:
    decode = SchemaDecode(Away())

    def transform(_: Session) -> list[OutputEvent]:
        try:
            decode(b"\0\0\0\0\7value")
        except RegistryAwayError:
            if then is not None:
                raise then from None
        return []

    with pytest.raises(RegistryAwayError, match="no answer"):
        run_transform(transform, SESSION, decode, ENCODE)


def test_a_refused_schema_of_an_output_is_no_fault_of_the_session() -> None:
    def refuses(_: Iterable[OutputEvent]) -> EncodedOutputs:
        raise OutputSchemaRefusedError("not under this subject")

    with pytest.raises(OutputSchemaRefusedError):
        run_transform(lambda _: [], SESSION, None, refuses)
