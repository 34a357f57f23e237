"""Assertions on a transform."""

from collections.abc import Iterable, Iterator

from spark_job.api import OutputEvent
from spark_job.testing.outputs import StoredOutput, difference
from spark_job.testing.running import TransformRun


def assert_outputs(result: TransformRun, expected: Iterable[OutputEvent | StoredOutput]) -> None:
    """Assert these outputs in this order, and no dead letter.

    Raises AssertionError that shows the dead letters, and a diff of the outputs as they would be stored.
    """
    found = [*_dead_letters(result), difference(expected, result.outputs)]
    if text := "\n".join(filter(None, found)):
        raise AssertionError(text)


def _dead_letters(result: TransformRun) -> Iterator[str]:
    for letter in result.letters:
        yield f"record {letter.first_offset} becomes a dead letter {letter.reason}: {letter.detail}"
    for each in result.sessions:
        if each.failure is not None:
            yield f"session {each.session.key!r} becomes a dead letter transform_failed:\n{each.failure}"
