"""Explain why the JVM did not start, from what it wrote to its stderr."""

import errno
import os
import re
import resource
from collections.abc import Sequence

from service.errors import DiskFullError, ExhaustedError, OutboxError, SettingsError, SparkStartError

_ENDED = "Spark's JVM did not start"
# (signs, error, what it means and how to fix it); the first match counts.
_SIGNS: tuple[tuple[tuple[str, ...], type[OutboxError], str], ...] = (
    (
        ("Too many open files", "unable to create native thread", "Resource temporarily unavailable"),
        ExhaustedError,
        "no descriptors or threads are left: raise the limits (ulimit -n, ulimit -u, the container's pids)",
    ),
    (
        ("No space left on device", "Disk quota exceeded"),
        DiskFullError,
        "a disk is full: make room, or move work files with TMPDIR",
    ),
    (
        ("There is insufficient memory", "Cannot allocate memory", "Could not reserve enough space"),
        SparkStartError,
        "the machine has not the memory that [job] driver_memory asks for: lower it, or give the machine or container more",
    ),
    (
        (
            "Could not find or load main class org.apache.spark",
            "NoSuchMethodError",
            "NoClassDefFoundError",
            "UnsupportedClassVersionError",
        ),
        SettingsError,
        "the classes are not those of this release's Spark: unset SPARK_HOME, SPARK_CLASSPATH and what else names another Spark or Java",
    ),
    (
        (
            "Could not find or load main class",
            "Unrecognized option",
            "Unrecognized VM option",
            "Invalid maximum heap size",
        ),
        SettingsError,
        (
            "it refuses an option: correct spark.driver.extraJavaOptions in [job.spark_options], [job] driver_memory, JAVA_TOOL_OPTIONS or "
            "JDK_JAVA_OPTIONS (a path with spaces needs quotes)"
        ),
    ),
    (
        ("Can't get Kerberos realm", "krb5", "KrbException"),
        SettingsError,
        (
            "Kerberos is not set up on this machine: name its realm in krb5.conf (KRB5_CONFIG, -Djava.security.krb5.conf), or remove "
            "hadoop.security.authentication from the configuration in HADOOP_CONF_DIR"
        ),
    ),
    (
        ("invalid null input: name", "unable to derive"),
        SettingsError,
        "the system knows no name of this user: give its uid a line in /etc/passwd",
    ),
    (
        ("UnknownHostException",),
        SettingsError,
        "this machine's own name does not resolve: add it to /etc/hosts, or set SPARK_LOCAL_IP to an address of the machine",
    ),
    (
        ("BindException", "Cannot assign requested address"),
        SettingsError,
        "it cannot bind the address of the driver: correct SPARK_LOCAL_IP, or spark.driver.bindAddress in [job.spark_options]",
    ),
    (
        ("failed to map segment from shared object",),
        SettingsError,
        "native code cannot be loaded from a folder that is mounted noexec: let TMPDIR name another one",
    ),
    (
        ("Permission denied", "AccessDeniedException"),
        SettingsError,
        "a file or folder is not accessible to this user",
    ),
    (
        ("No such file or directory", "NoSuchFileException", "Exec format error"),
        SettingsError,
        "a file is missing or is not a program: SPARK_HOME and JAVA_HOME must lead to a Spark and a Java",
    ),
)
_NOISE = re.compile(r"\s*(at |\.\.\. \d+ more|WARNING: |Picked up |NOTE: |SLF4J)")
_SHOWN_CHARS = 500
_FEW_DESCRIPTORS = 512


def start_failure(error: BaseException, stderr: Sequence[str]) -> OutboxError:
    """Return the error for a JVM that did not start. `error`: what the start raised; `stderr`: the last lines of launcher and JVM."""
    if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE, errno.EAGAIN):
        stderr = [os.strerror(errno.EMFILE)]
    lines = [line.strip() for line in [*stderr, *str(error).splitlines()] if line.strip()]
    for signs, kind, meaning in _SIGNS:
        for sign in signs:
            shown = next((line for line in lines if sign in line), None)
            if shown is not None:
                return kind(f"{_ENDED}: {meaning}. {shown[:_SHOWN_CHARS]}")
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if most < _FEW_DESCRIPTORS:
        return ExhaustedError(
            f"{_ENDED}: {most} descriptors are too few for it (ulimit -n): give it {_FEW_DESCRIPTORS} or more"
        )
    told = [line for line in lines if not _NOISE.match(line)]
    return SparkStartError(f"{_ENDED}: {' '.join(told[-4:])[:_SHOWN_CHARS]}")
