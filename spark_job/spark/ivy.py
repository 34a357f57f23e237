"""Find Java, and download Maven artifacts with the Apache Ivy that pyspark contains."""

import functools
import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from subprocess import CalledProcessError
from xml.sax.saxutils import quoteattr

from service.errors import OutboxError
from spark_job.spark.start_failure import start_failure

SUPPORTED_JAVA = (17, 21)
SETTINGS_VARIABLE = "SPARK_OUTBOX_IVY_SETTINGS"


class JarsError(OutboxError):
    """A jar, its lock file or Java itself is missing or not the expected one."""

    exit_code = 7


@dataclass(frozen=True)
class Root:
    """A source of a lock file: one coordinate, alone or with everything it depends on."""

    coordinate: str
    with_dependencies: bool


def java_executable() -> str:
    """Return the path of the `java` to run: $JAVA_HOME/bin/java if JAVA_HOME is set, else the one on PATH.

    Raises JarsError if there is no `java`, or if Spark or Kafka does not run on its major version; what `start_failure` returns if `java`
    ended before it reported its version.
    """
    home = os.environ.get("JAVA_HOME")
    wanted = " or ".join(map(str, SUPPORTED_JAVA))
    found = shutil.which(str(Path(home) / "bin" / "java")) if home else shutil.which("java")
    if found is None:
        where = (
            f"JAVA_HOME is {home!r}, but it has no bin/java"
            if home
            else "no 'java' on PATH and JAVA_HOME is not set"
        )
        raise JarsError(
            f"{where}: install Java {wanted} (e.g. apt-get install openjdk-17-jre-headless) or set JAVA_HOME"
        )
    major = _java_major(found)
    if major not in SUPPORTED_JAVA:
        raise JarsError(f"{found} is Java {major}, but Java {wanted} is needed: set JAVA_HOME to one")
    return found


def download(
    roots: Iterable[Root], scratch: Path, *, with_poms: bool, on_downloaded: Callable[[], None]
) -> dict[str, Path]:
    """Download the roots into `scratch` and return the jars by coordinate.

    Without POMs, Ivy fetches only the named jars: a pinned download is ten times faster. Raises JarsError naming what failed.
    """
    configured = os.environ.get(SETTINGS_VARIABLE)
    settings = Path(configured) if configured else scratch / "settings.xml"
    if configured and not settings.is_file():
        raise JarsError(f"{SETTINGS_VARIABLE} names {configured!r}, which is not a file")
    if not configured:
        settings.write_text(_settings_xml(with_poms=with_poms), encoding="utf-8")
    module = scratch / "ivy.xml"
    module.write_text(_module_xml(roots), encoding="utf-8")
    jars = scratch / "jars"
    command = [java_executable(), "-cp", str(_ivy_jar()), "org.apache.ivy.Main"]
    command += ["-settings", str(settings), "-ivy", str(module), "-cache", str(scratch / "ivy-cache")]
    command += ["-retrieve", f"{jars}/[organisation]!![artifact]!![revision].[ext]"]
    lines: list[str] = []
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8", errors="replace"
    ) as ivy:
        assert ivy.stdout is not None
        for line in ivy.stdout:
            lines.append(line)
            if "[SUCCESSFUL ]" in line:
                on_downloaded()
    if ivy.returncode < 0:
        raise start_failure(CalledProcessError(ivy.returncode, "ivy"), [])
    if ivy.returncode != 0:
        raise JarsError(_failure(lines))
    return {path.stem.replace("!!", ":"): path for path in jars.glob("*.jar")}


def _failure(lines: list[str]) -> str:
    missing = sorted(
        {m[1] for line in lines if (m := re.search(r":: ([\w.-]+#[\w.-]+;[\w.-]+): not found", line))}
    )
    names = ", ".join(name.replace("#", ":").replace(";", ":") for name in missing) or "the jars"
    tail = "".join(lines[-15:])
    return (
        f"could not download {names}. Is this machine online? Otherwise copy the cache (spark-outbox/jars in "
        "~/.cache or $XDG_CACHE_HOME) from one that has them, or name a mirror in an Ivy settings file and set "
        f"{SETTINGS_VARIABLE} to its path. "
        f"Ivy said:\n{tail}"
    )


def _ivy_jar() -> Path:
    spec = importlib.util.find_spec("pyspark")
    folders = spec.submodule_search_locations if spec is not None else None
    for folder in folders or ():
        for path in sorted(Path(folder).glob("jars/ivy-*.jar")):
            return path
    raise JarsError(
        "no jars/ivy-*.jar in the installed pyspark; install it with: pip install 'spark-outbox[job]'"
    )


def _settings_xml(*, with_poms: bool) -> str:
    # An m2compatible resolver without a root is Maven Central, by Ivy's own default.
    return (
        '<ivysettings><settings defaultResolver="central"/><resolvers>'
        f'<ibiblio name="central" m2compatible="true" usepoms="{str(with_poms).lower()}"/>'
        "</resolvers></ivysettings>"
    )


def _module_xml(roots: Iterable[Root]) -> str:
    dependencies = []
    for root in roots:
        group, artifact, version = (quoteattr(part) for part in root.coordinate.split(":"))
        transitive = str(root.with_dependencies).lower()
        dependencies.append(
            f"<dependency org={group} name={artifact} rev={version}"
            f' transitive="{transitive}" conf="default-&gt;default"/>'
        )
    return (
        '<ivy-module version="2.0"><info organisation="spark-outbox" module="jars"/>'
        '<configurations><conf name="default"/></configurations>'
        f"<dependencies>{''.join(dependencies)}</dependencies></ivy-module>"
    )


@functools.cache
def _java_major(java: str) -> int:
    command = [java, "-version"]
    try:
        done = subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace", check=False)
    except OSError as error:
        raise start_failure(error, []) from error
    version = re.search(r'version "(?:1\.)?(\d+)', done.stderr)
    if version is not None:
        return int(version[1])
    if done.returncode != 0:  # killed, or without resources that a JVM needs
        raise start_failure(CalledProcessError(done.returncode, command), done.stderr.splitlines())
    raise JarsError(
        f"{java} -version did not tell its version: {done.stderr.strip()!r}; set JAVA_HOME to Java 17 or 21"
    )
