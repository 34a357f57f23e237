"""An archive of Spark's classes. The JVM maps it, instead of loading, checking and linking some ten thousand classes at each start.

`spark-job prepare` makes it once for each version of Java and Spark (class data sharing, JEP 350). Its name depends on both, so that no
start after an upgrade uses the old archive. Without an archive a start takes longer, and nothing else changes.
"""

import hashlib
import os
from pathlib import Path

import pyspark

from service.private_file import others_may_write
from spark_job.spark.jars import cache_dir

# If an archive does not fit a JVM, because of other options for instance, the JVM continues without it, which needs no warning.
_QUIET = "-Xlog:cds*=error"


def archive(java: str) -> Path:
    """Return the path of the archive for this Java (an executable) and this Spark. It need not exist."""
    jars = sorted((Path(pyspark.__file__).parent / "jars").glob("*.jar"))
    # The name covers each jar's path, size and time. The JVM compares these, too, and ignores the archive if a jar has changed.
    content = "\n".join([_release(Path(os.path.realpath(java))), *map(_known, jars)])
    return cache_dir().parent / "classes" / f"{hashlib.sha256(content.encode()).hexdigest()[:16]}.jsa"


def options(java: str) -> list[str]:
    """Return the JVM's options for using the archive.

    Empty if there is no archive, or if others may have written it: the JVM would run its code.
    """
    path = archive(java)
    return [f"-XX:SharedArchiveFile={path}", _QUIET] if path.is_file() and _is_trusted(path) else []


def _is_trusted(path: Path) -> bool:
    return not any(others_may_write(each.stat()) for each in (path, path.parent))


def recording(path: Path) -> list[str]:
    """Return the options with which the JVM writes an archive to `path` when it ends."""
    return [f"-XX:ArchiveClassesAtExit={path}", _QUIET]


def _release(java: Path) -> str:
    release = java.parents[1] / "release"
    return f"{java} {release.read_text('utf-8', 'replace') if release.is_file() else ''}"


def _known(jar: Path) -> str:
    found = jar.stat()
    return f"{jar} {found.st_size} {int(found.st_mtime)}"
