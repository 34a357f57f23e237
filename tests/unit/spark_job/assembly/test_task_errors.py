"""What leaves a task says what happened and where, and nothing of an event."""

import errno
import traceback
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, KafkaException
from pyspark.errors import PySparkException

from service.errors import (
    BatchTooLargeError,
    DefectError,
    DiskFullError,
    ExhaustedError,
    JobFailedError,
    OutboxError,
    SettingsError,
    UnavailableError,
)
from service.formats.writer import RegistryAwayError
from service.kafka.reading import PartitionFailedError
from spark_job.assembly.task_errors import without_quotes
from spark_job.failures.explain import explain
from spark_job.input.reading import NoAnswerError


def of_worker(error: BaseException) -> str:
    """Return the traceback that a worker writes."""

    def rows() -> Iterator[int]:
        yield 1
        raise error

    with pytest.raises(BaseException) as raised:  # noqa: PT011 - any
        list(without_quotes(rows()))
    return "".join(traceback.format_exception(raised.value))


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (KeyError("Jane"), DefectError, "KeyError at test_task_errors.py, line"),
        (pa.ArrowInvalid("Jane"), DefectError, "pyarrow.lib.ArrowInvalid at test_task_errors.py, line"),
        (LookupError("Jane"), JobFailedError, "LookupError at test_task_errors.py, line"),
        (KeyboardInterrupt("Jane"), JobFailedError, "KeyboardInterrupt at test_task_errors.py, line"),
        (MemoryError("Jane"), BatchTooLargeError, "MemoryError"),
        (pa.ArrowMemoryError("Jane"), BatchTooLargeError, "pyarrow.lib.ArrowMemoryError"),
        (OSError(errno.ENOSPC, "Jane", "Jane"), DiskFullError, "[Errno 28] No space left on device"),
        (OSError(errno.EMFILE, "Jane"), ExhaustedError, ""),
        (RuntimeError("can't start new thread"), ExhaustedError, ""),
        (ModuleNotFoundError("No module named 'numpy'"), SettingsError, "No module named 'numpy'"),
        (OSError("/tmp/x.so: failed to map segment from shared object"), SettingsError, "/tmp/x.so: "),
        (KafkaException(KafkaError(KafkaError._ALL_BROKERS_DOWN)), UnavailableError, "_ALL_BROKERS_DOWN"),
        (NoAnswerError("Kafka did not give them"), UnavailableError, "Kafka did not give them"),
        (
            PartitionFailedError(KafkaError(KafkaError.KAFKA_STORAGE_ERROR), ("in", 1)),
            UnavailableError,
            "Kafka failed in a task",
        ),
    ],
    ids=repr,
)
def test_it_is_explained_as_before(error: BaseException, kind: type[OutboxError], said: str) -> None:
    text = of_worker(error)
    assert "Jane" not in text
    assert "in rows\n" in text, "the frames are kept"
    found = explain(PySparkException(f"Lost task: PythonException: {text}\n\tat X.y(X.scala:1)"))
    assert type(found) is kind
    assert said in str(found)


def test_a_server_s_answer_in_an_error_of_ours_looks_like_no_traceback() -> None:
    """So it does not decide whether the failure passes."""
    answer = "busy\nTraceback (most recent call last):\nspark_job.x.TransformStoppedError: y"
    found = explain(
        PySparkException(f"PythonException: {of_worker(RegistryAwayError(f'HTTP 503: {answer}'))}")
    )
    assert type(found) is UnavailableError
    assert f"HTTP 503: {' '.join(answer.split())}" in str(found)


def test_a_task_that_nobody_reads_on_is_closed() -> None:
    def rows() -> Iterator[int]:
        try:
            yield 1
        finally:
            ended.append(True)

    ended: list[bool] = []
    running: Any = without_quotes(rows())
    next(running)
    running.close()
    assert ended == [True]
