"""Explain a failure by Spark's text: a message, then the Java stack with its causes. The kind of one of the job's own errors
identifies a cause, or else a sign in that text.

Of a worker's Python tracebacks only the last exception counts: the exceptions before it are its causes, and their messages may quote
events. The last exception's message may, too, unless the exception is one of this project or of the system.
"""

import builtins
import os
import re
from collections.abc import Mapping

from service.errors import (
    BatchTooLargeError,
    ContinuityError,
    CredentialsRefusedError,
    DefectError,
    DiskFullError,
    ExhaustedError,
    JobFailedError,
    MovedError,
    OutboxError,
    RefusedError,
    SettingsError,
    TransformFailedError,
    UnavailableError,
    WorkerCodeChangedError,
    WorkerDiedError,
)
from spark_job.outputs.lacking import NO_THREAD, OF_ERRNO

EXHAUSTED = (
    "no descriptors or threads are left: raise the limits (ulimit -n, ulimit -u, the container's pids). The process ends, so that "
    "another one starts with none in use"
)
_TRACEBACK = "Traceback (most recent call last):\n"
# Exceptions that only a defect raises in a task: the transform's own failures have become letters.
_DEFECT = re.compile(
    r"((Key|Index|Type|Value|Attribute|Assertion|Name|ZeroDivision|Overflow|Unicode\w+|Recursion|Runtime|NotImplemented|UnboundLocal)Error"
    r"|StopIteration|struct\.error|orjson\.\w+|pyarrow\.lib\.Arrow\w+)\b"
)
_OURS = ("service.", "spark_job.", "contract.", "spark_outbox.")
"""In a wheel, `service` and `contract` are below `spark_outbox`."""
_OF_TASK = "spark_job.assembly.task_errors.TaskRaisedError: "
_KIND = re.compile(r"[\w.]*")
_OS_ERRORS = "|".join(
    name for name, kind in vars(builtins).items() if isinstance(kind, type) and issubclass(kind, OSError)
)
_OF_SYSTEM = re.compile(
    rf"({_OS_ERRORS}|socket\.\w+): \[Errno "
    r"|([\w.]*MemoryError|ImportError|ModuleNotFoundError|cimpl\.KafkaException)\b"
    rf"|OSError: \S+: failed to map segment|RuntimeError: {NO_THREAD}$|py4j\.|pyspark\."
)
"""Exceptions whose messages Python, Spark, Arrow and Kafka's client write."""


def _strerrors(lacking: type[OutboxError]) -> tuple[str, ...]:
    return tuple(os.strerror(number) for number, kind in OF_ERRNO.items() if kind is lacking)


_NO_LOGIN = "the login of Spark's executors gave no token ([kafka] login)"
_LACKING = "something is missing or wrong where Spark's workers run"
# The job's own errors: error, what it means and how to fix it. Only the kind counts: their texts quote topics and a registry's answers.
OWN_KINDS: Mapping[str, tuple[type[OutboxError], str]] = {
    "TransformStoppedError": (
        TransformFailedError,
        'the transform failed and [transform] on_error is "stop"',
    ),
    "CodeChangedError": (WorkerCodeChangedError, "code was changed under the running job"),
    "OutputSchemaRefusedError": (RefusedError, "the schema registry refuses the schema of an output"),
    "RegistryRefusedError": (
        RefusedError,
        "the schema registry refuses a request of the job: check [schema_registry]",
    ),
    "RegistryAwayError": (
        UnavailableError,
        "the schema registry does not answer. Records cannot be judged without it; the next attempt tries again",
    ),
    "OpenSessionsDifferError": (
        ContinuityError,
        (
            "the open sessions are not those that the outbox recorded. Find out what happened to the input; `spark-job run "
            "--accept-data-loss` continues with the sessions that Kafka has"
        ),
    ),
    "InputSchemaError": (
        SettingsError,
        (
            "Spark's Kafka source did not give its workers the records that the job asked for: its connector is another version, or "
            "[job.spark_options] changes what it does"
        ),
    ),
    "RecordsGoneError": (
        MovedError,
        "records that a task needs are gone from Kafka; the next start reports what is lost and how to continue",
    ),
    "NoAnswerError": (UnavailableError, "Kafka did not answer a task that read from it"),
    "SettingsError": (SettingsError, _LACKING),
    "LoginFailedError": (UnavailableError, _NO_LOGIN),
}
_REFUSED_LOGIN = (
    CredentialsRefusedError,
    "the schema registry refuses the credentials: check [schema_registry]",
)
# A topic's name has no spaces, so the first such words are ours; those of the registry follow.
_ANSWER = re.compile(r"answers HTTP (\d+), ")

# (signs in Spark's text, error, what it means and how to fix it); the first match counts.
SPARK_SIGNS: tuple[tuple[tuple[str, ...], type[OutboxError], str], ...] = (
    (
        (
            "ModuleNotFoundError: ",
            "schemas need the extra `schema-registry`",
        ),
        SettingsError,
        _LACKING,
    ),
    (
        ("failed to map segment from shared object",),
        SettingsError,
        "native code cannot be loaded from a folder that is mounted noexec: let TMPDIR, or an executor's java.io.tmpdir, name another one",
    ),
    (
        (
            *_strerrors(ExhaustedError),
            NO_THREAD,
            "unable to create native thread",
            "unable to create new native thread",
        ),
        ExhaustedError,
        EXHAUSTED,
    ),
    (
        _strerrors(DiskFullError),
        DiskFullError,
        "the disk of Spark's work files is full: make room (TMPDIR or spark.local.dir in [job.spark_options] moves them)",
    ),
    (
        (
            "java.lang.OutOfMemoryError",
            # Python's own, and what pyarrow makes of it
            "MemoryError",
            *_strerrors(BatchTooLargeError),
            "spark.driver.maxResultSize",
            "Cannot grow BufferHolder",
            "exceeds the limit of 2147483647",
        ),
        BatchTooLargeError,
        (
            "a batch does not fit in memory. The next attempt takes a quarter of its events; [job] driver_memory and "
            "max_events_per_batch decide "
            "what is tried first"
        ),
    ),
    (
        ("Python worker exited unexpectedly", "Python worker failed to connect back", "ExecutorLostFailure"),
        WorkerDiedError,
        (
            "Spark's Python workers or executors died again and again: killed for lack of memory, or crashed in native code, for "
            "instance in the "
            "transform. The next attempt takes a quarter of the events"
        ),
    ),
    (
        ("Some data may have been lost", "KAFKA_DATA_LOSS", "OffsetOutOfRangeException"),
        MovedError,
        "Kafka no longer has the records that the query was reading; the next start reports what is lost and how to continue",
    ),
    (
        # The message of Kafka's client if the job's endpoint gave it no token.
        ("retrieving token from callback handler",),
        UnavailableError,
        _NO_LOGIN,
    ),
    (
        (
            "errors.SaslAuthenticationException",
            "errors.SslAuthenticationException",
            "SSLHandshakeException",
            "javax.security.auth.login.LoginException",
            # librdkafka's message, from a rebuild of open sessions
            "code=_AUTHENTICATION",
            "code=_SSL",
            "SASL_AUTHENTICATION_FAILED",
        ),
        CredentialsRefusedError,
        "Kafka refuses the credentials or a certificate of Spark's executors. They are configured by [kafka]",
    ),
    (
        (
            "errors.TopicAuthorizationException",
            "errors.GroupAuthorizationException",
            "errors.ClusterAuthorizationException",
            "_AUTHORIZATION_FAILED",
        ),
        RefusedError,
        "Kafka refuses Spark's executors a right, such as Read on the input topics (docs/ecosystem.md). They are configured by [kafka]",
    ),
    (
        (
            "java.net.ConnectException",
            "java.net.SocketTimeoutException",
            "java.net.UnknownHostException",
            "java.net.NoRouteToHostException",
            "No resolvable bootstrap urls",
            "org.apache.kafka.common.errors.TimeoutException",
            "org.apache.kafka.common.errors.DisconnectException",
        ),
        UnavailableError,
        "a server that Spark needs does not answer: check [kafka] bootstrap_servers",
    ),
    (
        (
            "org.apache.kafka.common.config.ConfigException",
            "org.apache.kafka.common.KafkaException: Failed to construct",
            "org.apache.kafka.common.KafkaException: Failed to create",
            "code=_INVALID_ARG",
        ),
        SettingsError,
        "Kafka's client refuses its settings: correct [kafka.options], or for Spark's [kafka.java_options], which win",
    ),
    (
        ("DATA_SOURCE_NOT_FOUND", "Failed to find the data source: kafka"),
        SettingsError,
        "Spark has no Kafka connector: its jars are not those that the job named (spark.jars in [job.spark_options], spark-submit --jars)",
    ),
    (("cimpl.KafkaException", "PartitionFailedError"), UnavailableError, "Kafka failed in a task"),
)


def text_of(error: BaseException) -> str:
    """Return the message and the Java stack."""
    return f"{error}\n{getattr(error, '_stackTrace', None) or ''}"


def is_said(error: BaseException, signs: tuple[str, ...]) -> bool:
    """Tell whether Spark's text has one of the signs, not counting messages of exceptions in workers that may quote an event."""
    text, _ = _without_quotes(text_of(error))
    return any(sign in text for sign in signs)


def explain_text(error: BaseException) -> OutboxError:
    """Return the error for what Spark raised."""
    text, raised = _without_quotes(text_of(error))
    if (own := _own_kind(raised)) is not None:
        return own[0](f"{own[1]}. {_relevant(text, raised.strip())}")
    for signs, kind, meaning in SPARK_SIGNS:
        for sign in signs:
            if sign in text:
                return kind(f"{meaning}. {_relevant(text, sign)}")
    if _DEFECT.match(raised):
        return defect(raised)
    causes = _causes(text) if not raised else f"a task raised {raised}"
    return JobFailedError(
        f"the Spark query failed: {type(error).__name__}: {causes} (the whole of it is in spark.log, see docs/logs.md)"
    )


def _own_kind(raised: str) -> tuple[type[OutboxError], str] | None:
    """Return the error for one of the job's own that a task raised, and what it means; None for any other."""
    if not raised.startswith(_OURS):
        return None
    name = _KIND.match(raised)[0].rpartition(".")[2]  # type: ignore[index]
    if name in ("OutputSchemaRefusedError", "RegistryRefusedError"):
        answer = _ANSWER.search(raised)
        if answer is not None and answer[1] == "401":
            return _REFUSED_LOGIN
    return OWN_KINDS.get(name)


def defect(raised: str) -> DefectError:
    """Return the error for an exception that only a defect raises."""
    return DefectError(
        f"the job's own code failed: {raised}. Nothing of the batch was written. This is a defect: please report it, with the traceback in "
        "the log or in spark.log (docs/logs.md)"
    )


def _without_quotes(text: str) -> tuple[str, str]:
    """Return Spark's text with only the last exception of its Python tracebacks, and that exception ("" if there is none).

    Of an exception that is neither this project's nor the system's, return only the kind and the line that raised it: its message may quote
    an event.
    """
    before, found, _ = text.partition(_TRACEBACK)
    if not found:
        return text, ""
    raised, where = "an exception", ""
    lines = iter(text.rpartition(_TRACEBACK)[2].splitlines())
    for line in lines:
        if line.startswith("  File "):
            where = " at " + line.rsplit("/", 1)[-1].replace('"', "").rpartition(", in ")[0]
        elif not line.startswith(" "):
            line = line.removeprefix(_OF_TASK)
            if line.startswith(_OURS) or _OF_SYSTEM.match(line):
                return "\n".join((before, line, *lines)), line
            raised = f"{_KIND.match(line)[0]}{where}"  # type: ignore[index]
            break
    return f"{before}\n{raised}", raised


def _causes(text: str) -> str:
    """Return the message and the two innermost causes, without the stacks between them."""
    lines = [line.strip() for line in text.splitlines()]
    causes = [line for line in lines if line.startswith("Caused by: ")]
    told = [
        line
        for line in lines[:20]
        if line and not line.startswith(("at ", "Caused by: ", "File ", "Traceback"))
    ]
    return " ".join([" ".join(told)[:1_000], *causes[-2:]])[:2_000]


def _relevant(text: str, sign: str) -> str:
    """Return the message that contains the sign, without the Java stack."""
    lines = [line.strip() for line in text.splitlines()]
    found = [index for index, line in enumerate(lines) if sign in line]
    # The line of the error itself, not of the code that raised it.
    at = next((index for index in found if f"{sign}: " in lines[index]), found[0])
    while at > 0 and lines[at].startswith("at "):
        at -= 1
    told = [line for line in lines[at : at + 3] if line and not line.startswith("at ")]
    return " ".join(told)[:1_000]
