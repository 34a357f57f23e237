"""A JVM that does not start is explained by what it wrote, and by an error that says whether trying again can help."""

import errno
import resource

import pytest

from service.errors import DiskFullError, ExhaustedError, OutboxError, SettingsError, SparkStartError
from spark_job.failures.explain import is_of_size
from spark_job.spark.start_failure import start_failure
from spark_job.supervisor.attempts import passes_by_itself

EXITED = RuntimeError("[JAVA_GATEWAY_EXITED] Java gateway process exited before sending its port number.")
STACK = "\tat org.apache.spark.deploy.SparkSubmit.main(SparkSubmit.scala)"


@pytest.mark.parametrize(
    ("error", "stderr", "kind", "words"),
    [
        (
            EXITED,
            "Error: Could not find or load main class pipeline.cache.spark.log",
            SettingsError,
            "a path with spaces needs quotes",
        ),
        (
            EXITED,
            "Error: Could not find or load main class org.apache.spark.deploy.SparkSubmit",
            SettingsError,
            "SPARK_HOME",
        ),
        (EXITED, "Unrecognized VM option 'NoSuch'", SettingsError, "JAVA_TOOL_OPTIONS"),
        (
            EXITED,
            "java.net.UnknownHostException: pod-7: Name or service not known",
            SettingsError,
            "/etc/hosts",
        ),
        (EXITED, "java.lang.IllegalArgumentException: Can't get Kerberos realm", SettingsError, "krb5.conf"),
        (EXITED, "java.lang.NullPointerException: invalid null input: name", SettingsError, "/etc/passwd"),
        (EXITED, "java.net.BindException: Cannot assign requested address", SettingsError, "SPARK_LOCAL_IP"),
        (EXITED, "x.so: failed to map segment from shared object", SettingsError, "TMPDIR"),
        (EXITED, "java.io.IOException: Too many open files", ExhaustedError, "ulimit -n"),
        (EXITED, "java.io.IOException: No space left on device", DiskFullError, "make room"),
        (
            EXITED,
            "# There is insufficient memory for the Java Runtime Environment to continue.",
            SparkStartError,
            "[job] driver_memory",
        ),
        (OSError(errno.EMFILE, "x"), "", ExhaustedError, "ulimit -n"),
        (FileNotFoundError(errno.ENOENT, "No such file or directory", "/opt/s"), "", SettingsError, "/opt/s"),
        (EXITED, "java.lang.IllegalStateException: nobody knows", SparkStartError, "nobody knows"),
        (EXITED, "", SparkStartError, "JAVA_GATEWAY_EXITED"),
    ],
)
def test_its_cause_is_named(error: BaseException, stderr: str, kind: type[OutboxError], words: str) -> None:
    found = start_failure(
        error, ["WARNING: Using incubator modules: x", f"Exception in thread main {stderr}", STACK]
    )
    assert type(found) is kind
    assert words in str(found)
    assert "SparkSubmit.scala" not in str(found)
    assert passes_by_itself(found) == (kind in (SparkStartError, DiskFullError))
    assert not isinstance(found, SparkStartError) or not is_of_size(found)


def test_a_limit_that_no_jvm_can_work_with_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """It fails then with words that lead nowhere."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (30, 1_000))
    found = start_failure(EXITED, ["java.lang.InternalError: Error loading java.security file"])
    assert type(found) is ExhaustedError
    assert "30 descriptors are too few" in str(found)
