"""Prepare the JVM's environment: Spark's home, a folder for temporary files, a user.

Each of these may be missing or stale on a machine. The JVM then ends at once, or when it first needs the missing part. The job supplies
what it can; `start_failure.py` explains the rest.
"""

import contextlib
import os
import pwd
import stat
import time
from importlib.resources import files
from pathlib import Path

import pyspark
import structlog

log = structlog.get_logger()

_LEFT_S = 86_400.0
_UNIX_SYSTEM = "com/sun/security/auth/module/UnixSystem.class"


def option(text: str) -> str:
    """Return one option of a JVM as Spark's launcher reads it from a list: paths may have spaces and quotes."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def choose_spark_home() -> None:
    """Let SPARK_HOME lead to the Spark of this Python's pyspark, which cannot use another version."""
    own, named = Path(pyspark.__file__).parent, os.environ.get("SPARK_HOME")
    if named is None or _is_ours(Path(named)) or not _is_ours(own):
        return
    log.warning("spark_home_ignored", named=named, used=str(own))
    os.environ["SPARK_HOME"] = str(own)


def temporary_files(folder: Path, cache: str) -> Path:
    """Return a folder from which the JVM can load native code. Kafka's compression unpacks such code into the folder for temporary files.

    `folder`: this process's folder, the first choice. If it is mounted noexec, a folder in `cache` that only this user may use. If that
    folder does not serve either, log a warning and return `folder`.
    """
    if not _forbids_code(folder):
        return folder
    other = Path(cache).expanduser().absolute() / "jvm"
    other.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not _made_own(other):
        log.warning("temporary_files_not_ours", folder=str(other))
        return folder
    if _forbids_code(other):
        log.warning("temporary_files_noexec", folders=[str(folder), str(other)])
        return folder
    for left in other.iterdir():  # left by a JVM that was killed: a file is needed only while it is loaded
        with contextlib.suppress(OSError):
            if time.time() - left.stat().st_mtime > _LEFT_S:
                left.unlink()
    return other


def user_options(folder: Path) -> list[str]:
    """Return the JVM's options for a user whom the system does not know, as in OpenShift's containers; none for any other.

    `folder`: this process's folder; it is the home of a user whose HOME is missing or cannot be written. Nothing is kept in it.
    """
    user = os.geteuid()
    if _is_known(user):
        return []
    # The JDK has no name for such a user, and Hadoop's login, which Spark needs, fails without one.
    patch = folder / "nameless-user"
    target = patch.joinpath(*_UNIX_SYSTEM.split("/"))
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(files("spark_job.spark").joinpath("nameless_user", target.name).read_bytes())
    home = os.environ.get("HOME", "")
    return [
        f"-Duser.name=uid-{user}",
        f"-Duser.home={home if os.path.isabs(home) and os.access(home, os.W_OK) else folder}",
        f"-Doutbox.uid={user}",
        f"-Doutbox.gid={os.getegid()}",
        f"--patch-module=jdk.security.auth={patch}",
    ]


def _is_known(user: int) -> bool:
    try:
        pwd.getpwuid(user)
    except KeyError:
        return False
    return True


def _is_ours(home: Path) -> bool:
    return (home / "bin" / "spark-submit").is_file() and any(
        (home / "jars").glob(f"spark-core_*-{pyspark.__version__}.jar")
    )


def _made_own(folder: Path) -> bool:
    """Make it this user's alone, so that nobody else can plant code in it; False if it is another user's, or a link."""
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        return False
    folder.chmod(0o700)
    return True


def _forbids_code(folder: Path) -> bool:
    return bool(os.statvfs(folder).f_flag & os.ST_NOEXEC)
