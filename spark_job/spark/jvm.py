"""The JVM beside this process: start it, tell whether it is gone, and release it so that another one can be started.

pyspark keeps its JVM in class attributes (`SparkContext._gateway` and `_jvm`, the active context, `SparkSession`'s two sessions) and would
call a dead JVM for ever; even `SparkSession.stop` calls it.
"""

import contextlib
import os
import re
import subprocess
import threading
from collections import deque
from collections.abc import Iterable, Iterator

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark import SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession, SQLContext

from service.lifecycle.threads import supervised
from service.printable import printable
from spark_job.spark.start_failure import start_failure

_OUT_OF_MEMORY = 52  # Spark's exit code after an OutOfMemoryError that nothing caught (SparkExitCode.OOM)
_END_TIMEOUT_S = 30.0
_LAST_LINES = 200
_NOISE = (
    b"WARNING: Using incubator modules: ",
    b"Picked up JAVA_TOOL_OPTIONS: ",
    b"NOTE: Picked up JDK_JAVA_OPTIONS: ",
)
"""Lines that a JVM prints at every start, before it reads any log settings."""
_TRACEBACK = b"Traceback (most recent call last):\n"
_IN_DAEMON = re.compile(rb'  File ".*pyspark/daemon\.py", line \d+, in (manager|worker)\n')
_PIPE_CLOSED = b"BrokenPipeError: [Errno 32] Broken pipe\n"


class LostJvm:
    """A JVM that no longer answers. `exit_code`: negative for a signal, None if it is not this process's child or has not ended."""

    def __init__(self, exit_code: int | None) -> None:
        self.exit_code = exit_code

    @property
    def out_of_memory(self) -> bool:
        """Whether it ended itself for lack of heap."""
        return self.exit_code == _OUT_OF_MEMORY

    def __str__(self) -> str:
        if self.exit_code is None:
            return "it does not answer"
        return f"signal {-self.exit_code}" if self.exit_code < 0 else f"exit code {self.exit_code}"


def start() -> None:
    """Start the JVM, unless this process or spark-submit has started one. Its stderr goes to this process' own, without the noise.

    Raises what `start_failure` returns.
    """
    if SparkContext._gateway is not None or "PYSPARK_GATEWAY_PORT" in os.environ:
        return
    reading, writing = os.pipe()
    last = deque[bytes](maxlen=_LAST_LINES)
    passing_on = supervised(lambda: pass_on(reading, 2, last), "jvm-stderr", threading.Event())
    passing_on.start()
    try:
        try:
            gateway = launch_gateway(popen_kwargs={"stderr": writing})  # type: ignore[no-untyped-call]
        finally:
            os.close(writing)  # the JVM has a copy: the thread ends with the JVM
    except (PySparkRuntimeError, OSError) as error:
        passing_on.join(_END_TIMEOUT_S)
        raise start_failure(error, [line.decode(errors="replace") for line in last]) from error
    SparkContext._ensure_initialized(gateway=gateway)


def pass_on(reading: int, writing: int, last: deque[bytes] | None = None) -> None:
    """Copy lines, without the noise, from one descriptor to another until the first one's end; then close the first one.

    Control characters of foreign text are escaped. `last` gets the last lines.
    """
    # An error must not close it: the JVM must be able to continue writing.
    with open(reading, "rb", closefd=False) as lines:
        for line in _without_noise(lines):
            if last is not None:
                last.append(line)
            # A line that cannot be written is lost, as it would be without this thread.
            with contextlib.suppress(OSError):
                os.write(writing, printable(line.decode("utf-8", "backslashreplace"), keep="\n\t").encode())
    os.close(reading)


def _without_noise(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Leave out the noise, and the tracebacks of Python workers that Spark ends because they were idle for a minute.

    Several workers end at the same time, so that their lines mix: a line that may belong to such a traceback is held back until that is
    decided.
    """
    held: list[bytes] = []
    for line in lines:
        if line.startswith(_NOISE):
            continue
        if line == _TRACEBACK or (held and (line == _PIPE_CLOSED or _IN_DAEMON.fullmatch(line))):
            held.append(line)
            if held.count(_TRACEBACK) == held.count(_PIPE_CLOSED):
                held.clear()
            continue
        yield from held
        held.clear()
        yield line
    yield from held


def lost(error: BaseException | None = None) -> LostJvm | None:
    """Return what is known of a JVM that is gone or does not answer; None for any other, or if none was started. `error`: from Spark."""
    gateway = SparkContext._gateway
    if gateway is None:
        return None
    process: subprocess.Popen[bytes] | None = gateway.proc
    cut = isinstance(error, Py4JNetworkError | ConnectionError | EOFError)
    if process is None:  # spark-submit started it
        return LostJvm(None) if cut else None
    # A call that was in flight fails without a Java exception: with a network error, or with any other error of py4j.
    doubtful = cut or (isinstance(error, Py4JError) and not isinstance(error, Py4JJavaError))
    with contextlib.suppress(subprocess.TimeoutExpired):
        # The JVM's sockets close a moment before its process can be waited for.
        return LostJvm(process.wait(5.0 if doubtful else 0.0))
    return LostJvm(None) if cut else None


def is_ours() -> bool:
    """Whether this process started the JVM, so that it can start another one; under spark-submit the JVM is its parent."""
    gateway = SparkContext._gateway
    return gateway is None or gateway.proc is not None


def end(timeout_s: float) -> None:
    """Ask the JVM that this process started to end, and wait for its end. Raises subprocess.TimeoutExpired."""
    gateway = SparkContext._gateway
    assert gateway is not None
    assert gateway.proc is not None
    gateway.proc.stdin.close()  # the JVM lives as long as its stdin is open
    gateway.proc.wait(timeout_s)


def forget() -> None:
    """End what is left of the JVM and make pyspark forget it: the next session starts a new one."""
    gateway = SparkContext._gateway
    if gateway is None:
        return
    if gateway.proc is not None:
        gateway.proc.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            gateway.proc.wait(_END_TIMEOUT_S)
        gateway.proc.stdin.close()
    context = SparkContext._active_spark_context
    if context is not None:
        context._jsc = None  # else `stop` calls the dead JVM before it ends the accumulators' server
        context.stop()
    gateway.shutdown()
    SparkContext._gateway = SparkContext._jvm = None
    SparkSession._instantiatedSession = SparkSession._activeSession = None
    SQLContext._instantiatedContext = None
