"""What ends an attempt says what to do, with an exit code for its cause, whether it passes by itself, and without payloads."""

import errno
import inspect
import os
import traceback
from collections import defaultdict

import psycopg
import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from pyspark.errors import PySparkException

import service.errors
import spark_job.spark.ivy
from service.errors import (
    BatchTooLargeError,
    ContinuityError,
    CredentialsRefusedError,
    DefectError,
    DiskFullError,
    ExhaustedError,
    FencedError,
    JobFailedError,
    MovedError,
    OptionsRefusedError,
    OutboxError,
    RefusedError,
    SecretUnreadableError,
    SettingsError,
    SparkLostError,
    TransformFailedError,
    UnavailableError,
    WorkerCodeChangedError,
    WorkerDiedError,
)
from spark_job.assembly import rebuild
from spark_job.failures import spark_text
from spark_job.failures.explain import explain, explained, is_of_size
from spark_job.input import reading
from spark_job.outputs import transform, transform_failures
from spark_job.outputs.lacking import OF_ERRNO
from spark_job.outputs.transform_failures import TransformRaisedError, TransformStoppedError
from spark_job.spark import jvm
from spark_job.supervisor.attempts import passes_by_itself
from tests.support.pages.markdown import tables
from tests.support.paths import ROOT

OPERATIONS = ROOT / "docs" / "operations.md"
LOGS = ROOT / "docs" / "logs.md"
ABORTED = "Job aborted due to stage failure: Task 0 in stage 8.0 failed 4 times, most recent failure: Lost task 0.3 in stage 8.0 (TID 9)"
STACK = "\tat org.apache.spark.scheduler.DAGScheduler.failJobAndIndependentStages(DAGScheduler.scala:2935)"


class ShownError(PySparkException):
    """As pyspark raises it: a message, and the Java stack beside it."""

    def __init__(self, message: str, stack: str = "") -> None:
        super().__init__(message)
        self._stackTrace = stack


def in_worker(raised: str) -> ShownError:
    """What a Python worker raised, as Spark shows it."""
    return ShownError(
        f"{ABORTED} (host executor driver): org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n"
        '  File "/app/spark_job/assembly/task.py", line 120, in take\n'
        "    assembled = assemble(state, new, self._of.rules)\n"
        f"{raised}\n\n"
        "\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:800)\n"
        "\nDriver stacktrace:\n" + STACK
    )


def in_java(cause: str) -> ShownError:
    """What happened inside of the JVM, as Spark shows it: message, and the stack with its causes."""
    stack = f"org.apache.spark.SparkException: {ABORTED}\n{STACK}\nCaused by: {cause}\n\tat org.apache.spark.X.y(X.scala:1)\n\t... 12 more"
    return ShownError(f"{ABORTED}: {cause}\n{STACK}", stack)


def kafka(code: int, text: str = "") -> KafkaException:
    return KafkaException(KafkaError(code, text))


AS_RAISED = {
    TransformFailedError: in_worker(
        "spark_job.outputs.transform_failures.TransformStoppedError: m:f failed for the session that ends at in/0/5"
    ),
    WorkerCodeChangedError: in_worker(
        "spark_job.outputs.transform.CodeChangedError: m:f was edited or replaced"
    ),
}

# (exception, our error, exit code, whether it passes, what is shown of the cause)
FAILURES: dict[str, tuple[BaseException, type[OutboxError], int, bool, str]] = {
    "an explained one": (FencedError("mine"), FencedError, 4, False, "mine"),
    # Postgres
    "server gone": (psycopg.OperationalError("server closed"), UnavailableError, 6, True, "server closed"),
    "connection closed": (
        psycopg.InterfaceError("the connection is closed"),
        UnavailableError,
        6,
        True,
        "connection is closed",
    ),
    "wrong password": (
        psycopg.errors.InvalidPassword("password authentication failed"),
        UnavailableError,
        6,
        True,
        "authentication failed",
    ),
    "frozen": (
        psycopg.errors.IdleInTransactionSessionTimeout("x"),
        UnavailableError,
        6,
        True,
        "idle_in_transaction_timeout_ms",
    ),
    "disk of Postgres": (
        psycopg.errors.DiskFull("no space"),
        UnavailableError,
        6,
        True,
        "the disk of Postgres is full: no space",
    ),
    "lock": (psycopg.errors.LockNotAvailable("canceled"), UnavailableError, 6, True, "lock_timeout_ms"),
    "standby": (
        psycopg.errors.ReadOnlySqlTransaction("read-only"),
        UnavailableError,
        6,
        True,
        "target_session_attrs=read-write",
    ),
    "shutdown": (psycopg.errors.AdminShutdown("terminating"), UnavailableError, 6, True, "terminating"),
    "deadlock": (psycopg.errors.DeadlockDetected("deadlock"), UnavailableError, 6, True, "deadlock"),
    "out of locks": (
        psycopg.errors.OutOfMemory("out of shared memory"),
        UnavailableError,
        6,
        True,
        "out of shared memory",
    ),
    "constraint": (
        psycopg.errors.CheckViolation("violates\nDETAIL:  row contains (secret)"),
        RefusedError,
        16,
        False,
        "violates",
    ),
    "value": (
        psycopg.errors.InvalidTextRepresentation('invalid input syntax for type bigint: "secret"'),
        RefusedError,
        16,
        False,
        "InvalidTextRepresentation",
    ),
    "value that the client refuses": (
        psycopg.DataError("date too large: 'secret'"),
        RefusedError,
        16,
        False,
        "DataError",
    ),
    "right": (
        psycopg.errors.InsufficientPrivilege("denied for table batch"),
        RefusedError,
        16,
        False,
        "denied for table",
    ),
    "no such table": (
        psycopg.errors.UndefinedTable("batch does not exist"),
        RefusedError,
        16,
        False,
        "batch does not exist",
    ),
    "row too big": (
        psycopg.errors.ProgramLimitExceeded("row is too big"),
        RefusedError,
        16,
        False,
        "row is too big",
    ),
    "corrupted": (psycopg.errors.DataCorrupted("invalid page"), RefusedError, 16, False, "invalid page"),
    # Kafka, asked by the driver
    "brokers down": (kafka(KafkaError._ALL_BROKERS_DOWN), UnavailableError, 6, True, "Kafka: "),
    "SASL": (
        kafka(KafkaError._AUTHENTICATION, "bad password"),
        CredentialsRefusedError,
        16,
        True,
        "Kafka refuses the job's credentials, or there is no TLS connection to it: bad password",
    ),
    "TLS": (
        kafka(KafkaError._SSL, "handshake failed"),
        CredentialsRefusedError,
        16,
        True,
        "no TLS connection to it: handshake failed",
    ),
    "ACL": (
        kafka(KafkaError.TOPIC_AUTHORIZATION_FAILED, "denied"),
        RefusedError,
        16,
        False,
        "denied. Grant it this right",
    ),
    "option of librdkafka": (
        kafka(KafkaError._INVALID_ARG, "No such property"),
        OptionsRefusedError,
        2,
        True,
        "No such property. Correct [kafka.options]",
    ),
    # The job's own, in a worker
    "transform": (
        AS_RAISED[TransformFailedError],
        TransformFailedError,
        11,
        False,
        "m:f failed for the session that ends at in/0/5",
    ),
    "code changed": (
        AS_RAISED[WorkerCodeChangedError],
        WorkerCodeChangedError,
        18,
        False,
        "m:f was edited or replaced",
    ),
    "open sessions differ": (
        in_worker(
            "spark_job.assembly.rebuild.OpenSessionsDifferError: in/0: the sessions open at offset 5 are not those"
        ),
        ContinuityError,
        5,
        False,
        "in/0: the sessions open at offset 5",
    ),
    "retention overtook a rebuild": (
        in_worker(
            "spark_job.input.reading.RecordsGoneError: Kafka has deleted some of the records that are needed: in/0 from 3 up to 7"
        ),
        MovedError,
        5,
        True,
        "are needed: in/0 from 3 up to 7",
    ),
    "schema registry away": (
        in_worker(
            "service.formats.writer.RegistryAwayError: the schema registry at http://r does not answer: ConnectError: refused"
        ),
        UnavailableError,
        6,
        True,
        "the schema registry at http://r does not answer",
    ),
    "schema registry refuses": (
        in_worker(
            "service.formats.writer.RegistryRefusedError: the schema registry at http://r answers HTTP 401, code 40101: who are you?"
        ),
        CredentialsRefusedError,
        16,
        True,
        "who are you?",
    ),
    "schema of an output refused": (
        in_worker(
            "spark_job.outputs.schemas.OutputSchemaRefusedError: an output for 'orders' has a schema that is not to be used: the "
            "schema registry at http://r answers HTTP 409, code 409: incompatible"
        ),
        RefusedError,
        16,
        False,
        "code 409: incompatible",
    ),
    "Kafka away in a rebuild": (
        in_worker(
            "spark_job.input.reading.NoAnswerError: in/0: Kafka did not give the records up to offset 9"
        ),
        UnavailableError,
        6,
        True,
        "Kafka did not give the records up to offset 9",
    ),
    "a rebuild refused": (
        in_worker(
            'cimpl.KafkaException: KafkaError{code=_AUTHENTICATION,val=-169,str="SASL authentication error"}'
        ),
        CredentialsRefusedError,
        16,
        True,
        "SASL authentication error",
    ),
    "option of a rebuild": (
        in_worker(
            'cimpl.KafkaException: KafkaError{code=_INVALID_ARG,val=-186,str="ssl.ca.location failed"}'
        ),
        SettingsError,
        2,
        False,
        "ssl.ca.location failed",
    ),
    "transform not there": (
        in_worker("service.errors.SettingsError: importing m failed"),
        SettingsError,
        2,
        False,
        "importing m failed",
    ),
    "package not there": (
        in_worker("ModuleNotFoundError: No module named 'spark_job'"),
        SettingsError,
        2,
        False,
        "No module named 'spark_job'",
    ),
    # Spark
    "heap": (
        in_java("java.lang.OutOfMemoryError: Java heap space"),
        BatchTooLargeError,
        13,
        True,
        "Java heap space",
    ),
    "result size": (
        ShownError(
            f"{ABORTED}: Total size of serialized results of 9 tasks (1033.2 MiB) is bigger than spark.driver.maxResultSize (1024.0 MiB)"
        ),
        BatchTooLargeError,
        13,
        True,
        "1033.2 MiB",
    ),
    "row over 2 GiB": (
        in_java("java.lang.IllegalArgumentException: Cannot grow BufferHolder by size 9"),
        BatchTooLargeError,
        13,
        True,
        "by size 9",
    ),
    "worker died": (
        in_java("org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)"),
        WorkerDiedError,
        17,
        True,
        "(crashed)",
    ),
    "executor died": (
        ShownError(f"{ABORTED}: ExecutorLostFailure (executor 1 exited: 137)"),
        WorkerDiedError,
        17,
        True,
        "executor 1 exited: 137",
    ),
    "disk": (
        in_java("java.io.IOException: No space left on device"),
        DiskFullError,
        14,
        True,
        "No space left",
    ),
    "retention overtook the query": (
        in_java("java.lang.IllegalStateException: Some data may have been lost because x"),
        MovedError,
        5,
        True,
        "because x",
    ),
    "Spark's SASL": (
        in_java("org.apache.kafka.common.errors.SaslAuthenticationException: bad"),
        CredentialsRefusedError,
        16,
        True,
        "SaslAuthenticationException: bad",
    ),
    "Spark's ACL": (
        in_java("org.apache.kafka.common.errors.TopicAuthorizationException: [in]"),
        RefusedError,
        16,
        False,
        "[in]",
    ),
    "Spark's TLS": (
        in_java("javax.net.ssl.SSLHandshakeException: PKIX path"),
        CredentialsRefusedError,
        16,
        True,
        "PKIX path",
    ),
    "Kafka away": (
        in_java("org.apache.kafka.common.errors.TimeoutException: Timed out waiting for a node"),
        UnavailableError,
        6,
        True,
        "waiting for a node",
    ),
    "no host": (
        in_java("java.net.UnknownHostException: kafka"),
        UnavailableError,
        6,
        True,
        "UnknownHostException: kafka",
    ),
    "bad java_options": (
        in_java("org.apache.kafka.common.config.ConfigException: Invalid value x"),
        SettingsError,
        2,
        False,
        "Invalid value x",
    ),
    "no connector": (
        ShownError("[DATA_SOURCE_NOT_FOUND] Failed to find the data source: kafka"),
        SettingsError,
        2,
        False,
        "data source: kafka",
    ),
    "unknown": (
        in_java("java.lang.IllegalStateException: nobody knows"),
        JobFailedError,
        10,
        True,
        "Caused by: java.lang.IllegalStateException: nobody knows",
    ),
    # The machine's resources, in this process and in Spark's
    "own memory": (MemoryError(), BatchTooLargeError, 13, True, "MemoryError"),
    "memory of a task": (
        in_worker("pyarrow.lib.ArrowMemoryError: malloc"),
        BatchTooLargeError,
        13,
        True,
        "malloc",
    ),
    "memory of a transform": (in_worker("MemoryError"), BatchTooLargeError, 13, True, "MemoryError"),
    "native code of a task": (
        in_worker("ImportError: /tmp/x.so: failed to map segment from shared object"),
        SettingsError,
        2,
        False,
        "/tmp/x.so",
    ),
    "threads of a task": (
        in_worker("RuntimeError: can't start new thread"),
        ExhaustedError,
        22,
        False,
        "can't start new thread",
    ),
    "a command that a task cannot read": (
        in_worker(
            'pyspark.serializers.SerializationError: Caused by Traceback (most recent call last):\n  File "/x/y.py", line 1, in f\n'
            "ModuleNotFoundError: No module named 'x'\n"
        ),
        SettingsError,
        2,
        False,
        "No module named 'x'",
    ),
    "the JVM, called by Python": (
        in_worker("py4j.protocol.Py4JJavaError: An error occurred\n: java.lang.OutOfMemoryError: heap"),
        BatchTooLargeError,
        13,
        True,
        "java.lang.OutOfMemoryError: heap",
    ),
    "own disk": (OSError(errno.ENOSPC, "No space left on device"), DiskFullError, 14, True, "No space left"),
    "own quota": (OSError(errno.EDQUOT, "Disk quota exceeded"), DiskFullError, 14, True, "quota"),
    "disk of a task": (
        in_worker("OSError: [Errno 28] No space left on device"),
        DiskFullError,
        14,
        True,
        "No space left",
    ),
    "own descriptors": (OSError(errno.EMFILE, "Too many open files"), ExhaustedError, 22, False, "ulimit -n"),
    "own processes": (OSError(errno.EAGAIN, "fork"), ExhaustedError, 22, False, "ulimit -u"),
    "descriptors of the machine": (OSError(errno.ENFILE, "x"), ExhaustedError, 22, False, "x"),
    "own threads": (RuntimeError("can't start new thread"), ExhaustedError, 22, False, "new thread"),
    "descriptors for Postgres": (
        psycopg.OperationalError("could not create socket: Too many open files"),
        ExhaustedError,
        22,
        False,
        "could not create socket",
    ),
    "descriptors for Kafka": (
        kafka(KafkaError._CRIT_SYS_RESOURCE, "failed to create thread"),
        ExhaustedError,
        22,
        False,
        "failed to create thread",
    ),
    "threads of the JVM": (
        in_java("java.lang.OutOfMemoryError: unable to create native thread: possibly out of memory"),
        ExhaustedError,
        22,
        False,
        "native thread",
    ),
    "descriptors of the JVM": (
        in_java("java.net.SocketException: Too many open files"),
        ExhaustedError,
        22,
        False,
        "Too many open files",
    ),
    "descriptors of a task": (
        in_worker("OSError: [Errno 24] Too many open files: '/dev/null'"),
        ExhaustedError,
        22,
        False,
        "/dev/null",
    ),
    # Defects
    "a key in this process": (KeyError("secret"), DefectError, 21, True, "KeyError"),
    "a type in this process": (TypeError("secret"), DefectError, 21, True, "TypeError"),
    "Arrow in this process": (pa.ArrowInvalid("secret"), DefectError, 21, True, "ArrowInvalid"),
    "a key in a task": (
        in_worker("KeyError: 'secret'"),
        DefectError,
        21,
        True,
        "KeyError at task.py, line 120.",
    ),
    "Arrow in a task": (
        in_worker("pyarrow.lib.ArrowInvalid: secret\nof two lines"),
        DefectError,
        21,
        True,
        "pyarrow.lib.ArrowInvalid at task.py, line 120.",
    ),
    "a library in a task": (
        in_worker("library.errors.OddError: the secret"),
        JobFailedError,
        10,
        True,
        "a task raised library.errors.OddError at task.py, line 120 (",
    ),
    "ours in a task, installed": (
        in_worker("spark_outbox.service.errors.OddError: its words"),
        JobFailedError,
        10,
        True,
        "a task raised spark_outbox.service.errors.OddError: its words (",
    ),
    "a file of a task": (in_worker("PermissionError: [Errno 13] denied"), JobFailedError, 10, True, "denied"),
    "damage that passes": (
        in_worker("spark_job.sessions.errors.DamagedStateError: it has another format"),
        JobFailedError,
        10,
        True,
        "another format",
    ),
    "Kafka away from a task": (
        in_worker('cimpl.KafkaException: KafkaError{code=_ALL_BROKERS_DOWN,val=-187,str="1/1 brokers down"}'),
        UnavailableError,
        6,
        True,
        "brokers down",
    ),
    "package of a transform not there": (
        in_worker("ModuleNotFoundError: No module named 'orjson'"),
        SettingsError,
        2,
        False,
        "No module named 'orjson'",
    ),
}


@pytest.mark.guarantee(111, 116)
@pytest.mark.parametrize("case", FAILURES)
def test_every_failure_has_its_error_its_exit_code_and_its_cause_and_passes_or_not(case: str) -> None:
    raised, kind, exit_code, passes, shown = FAILURES[case]
    error = explain(raised)
    assert (type(error), error.exit_code, passes_by_itself(error)) == (kind, exit_code, passes)
    said = str(error)
    assert shown in said
    assert "secret" not in said
    assert "\tat " not in said
    assert " at org.apache" not in said
    assert len(said) < 3_000


@pytest.mark.guarantee(118)
@pytest.mark.parametrize("case", FAILURES)
def test_no_failure_is_of_size_but_want_of_room_and_deaths(case: str) -> None:
    """An outage of a registry, Kafka or Postgres makes no batch smaller."""
    raised, kind, *_ = FAILURES[case]
    assert is_of_size(explain(raised)) == (kind in (BatchTooLargeError, WorkerDiedError, DiskFullError))


@pytest.mark.guarantee(118)
@pytest.mark.parametrize("number", OF_ERRNO, ids=errno.errorcode.get)
def test_what_the_machine_lacks_is_the_same_error_from_a_task_and_from_this_process(number: int) -> None:
    raised = OSError(number, os.strerror(number))
    in_task = in_worker(f"{type(raised).__name__}: {raised}")
    assert type(explain(in_task)) is type(explain(raised)) is OF_ERRNO[number]


def test_every_sign_that_spark_may_show_leads_to_the_error_of_its_row() -> None:
    for signs, kind, meaning in spark_text.SPARK_SIGNS:
        for sign in signs:
            error = explain(ShownError(f"{ABORTED}: {sign}: words"))
            assert type(error) is kind, sign
            assert str(error).startswith(f"{meaning}. "), sign
            assert f"{sign}: words" in str(error)


REFUSED_OUTPUT = (
    "spark_job.outputs.schemas.OutputSchemaRefusedError: an output for '{}' has a schema that is not to be used: "
    "the schema registry at http://r answers HTTP 409, code 409: {}"
)


@pytest.mark.parametrize(
    "quoted", [*spark_text.OWN_KINDS, "service.errors.SettingsError", "java.lang.OutOfMemoryError"]
)
def test_a_topic_and_an_answer_that_are_named_like_a_cause_are_none(quoted: str) -> None:
    """An event may name the topic."""
    for raised, kind in (
        (REFUSED_OUTPUT.format(quoted, "incompatible"), RefusedError),
        (REFUSED_OUTPUT.format("orders", f"{quoted}: answers HTTP 401, code 1"), RefusedError),
        (
            f"service.formats.writer.RegistryAwayError: the schema registry at http://r answers HTTP 503, code 5: {quoted}: x",
            UnavailableError,
        ),
    ):
        error = explain(in_worker(raised))
        assert type(error) is kind
        assert raised in str(error)


def test_each_error_of_a_task_that_has_a_row_leads_to_it() -> None:
    for name, (kind, meaning) in spark_text.OWN_KINDS.items():
        for package in ("service.errors", "spark_outbox.service.errors", "spark_job.a.b"):
            error = explain(in_worker(f"{package}.{name}: words"))
            assert (type(error), str(error)) == (kind, f"{meaning}. {package}.{name}: words")


def test_the_errors_of_tasks_have_the_names_that_they_are_known_by() -> None:
    signs = set(spark_text.OWN_KINDS)
    for module in (transform, transform_failures, rebuild, reading):
        own = {
            kind.__name__
            for _, kind in inspect.getmembers(module, inspect.isclass)
            if kind.__module__ == module.__name__ and issubclass(kind, Exception)
        } - {TransformRaisedError.__name__}  # the task catches it
        assert own <= signs
        assert own


FORGED = "TransformStoppedError: all is well, Jane Doe\nborn 1970-01-01\nin Springfield"


@pytest.mark.parametrize(
    "quoted",
    [
        "java.net.ConnectException: refused",
        "java.lang.OutOfMemoryError",
        "No space left on device",
        FORGED,
        f"spark_job.outputs.transform_failures.{FORGED}",
        f'x\n\nTraceback (most recent call last):\n  File "m.py", line 1, in f\nspark_job.outputs.transform_failures.{FORGED}',
        f"x\n\tat org.apache.X.y(X.scala:1)\nCaused by: java.lang.OutOfMemoryError: {FORGED}",
    ],
)
def test_what_a_transform_quotes_is_neither_taken_for_the_cause_nor_shown(quoted: str) -> None:
    """The error is stored in `outbox.run.ended_because`, where no erasure finds it (SECURITY.md, docs/privacy.md)."""
    said = "m:f failed for the session that ends at in/0/5"
    try:
        try:
            raise ValueError(quoted)
        except ValueError as cause:
            raise TransformStoppedError(said) from cause
    except TransformStoppedError:
        text = traceback.format_exc().removeprefix("Traceback (most recent call last):\n").rstrip()
    assert quoted in text
    error = explain(in_worker(text))
    assert type(error) is TransformFailedError
    assert str(error) == (
        'the transform failed and [transform] on_error is "stop". '
        f"spark_job.outputs.transform_failures.TransformStoppedError: {said}"
    )


@pytest.mark.parametrize(
    "sign", [*spark_text.OWN_KINDS, *(sign for signs, *_ in spark_text.SPARK_SIGNS for sign in signs)]
)
def test_a_sign_in_the_message_of_a_library_s_exception_in_a_task_is_no_sign(sign: str) -> None:
    raised = in_worker(f"library.errors.OddError: {sign}: secret\n{sign}: secret\nCaused by: {sign}: secret")
    error = explain(raised)
    assert type(error) is JobFailedError
    assert "a task raised library.errors.OddError at task.py, line 120 (" in str(error)
    assert "secret" not in str(error)
    assert not spark_text.is_said(raised, (sign,))
    assert spark_text.is_said(in_java(f"{sign}: words"), (sign,))


@pytest.mark.guarantee(117)
def test_an_unknown_failure_shows_its_innermost_causes_and_where_the_whole_of_it_is() -> None:
    stack = "\n".join(
        [
            "py4j.Py4JException: x",
            STACK,
            *(f"Caused by: java.lang.Error: cause {n}\n{STACK}" for n in range(5)),
        ]
    )
    said = str(explain(ShownError("An error occurred while calling o12.toArrow.", stack)))
    assert "An error occurred while calling o12.toArrow." in said
    assert said.index("cause 3") < said.index("cause 4")
    assert "cause 2" not in said
    assert "(the whole of it is in spark.log, see docs/logs.md)" in said
    assert "## Spark's own log" in LOGS.read_text("utf-8")


@pytest.mark.parametrize(
    ("exit_code", "kind", "words"),
    [
        (52, BatchTooLargeError, "ran out of memory (exit code 52)"),
        (-9, SparkLostError, "is gone (signal 9)"),
    ],
)
def test_a_jvm_that_is_gone_is_told_by_how_it_ended(
    monkeypatch: pytest.MonkeyPatch, exit_code: int, kind: type[OutboxError], words: str
) -> None:
    monkeypatch.setattr(jvm, "lost", lambda _error=None: jvm.LostJvm(exit_code))
    error = explain(ConnectionError("refused"))
    assert type(error) is kind
    assert words in str(error)
    assert passes_by_itself(error)
    assert is_of_size(error)


def kinds() -> list[type[OutboxError]]:
    """Every error with which `spark-job run` ends and that has an exit code of its own."""
    return [
        kind
        for module in (service.errors, spark_job.spark.ivy)
        for kind in vars(module).values()
        if inspect.isclass(kind)
        and issubclass(kind, OutboxError)
        and kind.__module__ == module.__name__
        and "exit_code" in vars(kind)
    ]


@pytest.mark.guarantee(116)
def test_every_cause_with_a_remedy_of_its_own_has_an_exit_code_of_its_own_and_is_documented() -> None:
    codes = {kind.exit_code: kind for kind in kinds()}
    assert len(codes) == len(kinds()) > 15
    assert set(codes) == set(documented())


@pytest.mark.guarantee(116)
def test_the_page_says_of_each_exit_code_whether_it_is_tried_again() -> None:
    told: dict[int, set[str]] = defaultdict(set)
    all_kinds: list[type[OutboxError]] = [
        *kinds(),
        MovedError,
        SecretUnreadableError,
        CredentialsRefusedError,
    ]
    for kind in all_kinds:
        told[kind.exit_code].add("yes" if passes_by_itself(kind("x")) else "no")
    assert told == documented()


def test_a_servers_error_outside_the_query_is_explained_too() -> None:
    with pytest.raises(UnavailableError, match="gone"), explained():
        raise psycopg.OperationalError("gone")
    with pytest.raises(SettingsError, match=r"no\.such\.option"), explained():
        AdminClient({"no.such.option": "1"})


def test_an_error_of_the_operating_system_is_not_taken_for_a_lost_jvm() -> None:
    with pytest.raises(PermissionError), explained():
        raise PermissionError("mine")


def documented() -> dict[int, set[str]]:
    """{exit code: whether the job retries, of each of its causes} of the table in docs/operations.md. The publisher's own rows say –."""
    (rows,) = [
        body
        for head, body in tables(OPERATIONS)
        if head[:4] == ["code", "from", "what happened", "job retries"]
    ]
    found: dict[int, set[str]] = defaultdict(set)
    for code, origin, _, retries, *_ in rows:
        if code != "0" and origin != "publisher" and not code.startswith("128"):
            found[int(code)].add(retries)
    return found
