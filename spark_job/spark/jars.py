"""The jars that a process needs: resolved once, verified, kept in the user's cache.

pyspark ships no Kafka connector and devstack needs Kafka's own jars. `.lock` files name both:

    # root GROUP:ARTIFACT:VERSION [+dependencies]      what `--relock` starts from
    GROUP:ARTIFACT:VERSION  FILENAME  SHA256           one line per jar

Apache Ivy, which ships inside pyspark, downloads them from the repository it knows by default. Behind a
mirror, name an Ivy settings file in SPARK_OUTBOX_IVY_SETTINGS. A jar enters the cache only with the pinned
sha256.
"""

import argparse
import errno
import fcntl
import hashlib
import os
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from spark_job.spark.ivy import SETTINGS_VARIABLE, JarsError, Root, download, java_executable

__all__ = ["Jar", "JarsError", "Progress", "java_executable", "resolve", "spark_connector_jars"]

Progress = Callable[[int, int], None]
"""Called with (jars downloaded so far, jars to download)."""

_COORDINATE = re.compile(r"[\w.-]+:[\w.-]+:[\w.-]+")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_ROOT = "# root "
_WITH_DEPENDENCIES = "+dependencies"
_NOT_OURS = (errno.EACCES, errno.EPERM, errno.EROFS)
_ELSEWHERE = "Set XDG_CACHE_HOME to a folder that this user may write, or that has the jars already"


@dataclass(frozen=True)
class Jar:
    """One pinned jar: `coordinate` is group:artifact:version, `sha256` lower-case hex."""

    coordinate: str
    filename: str
    sha256: str


def spark_connector_jars(*, progress: Progress | None = None) -> list[Path]:
    """Return the jars that Spark needs to read Kafka and does not contain. Raises as `resolve` does."""
    return resolve(files("spark_job.spark") / "jars.lock", progress=progress)


def resolve(lock: Path | Traversable, *, progress: Progress | None = None) -> list[Path]:
    """Return the paths of a lock file's jars, in its order; download the jars that the cache lacks.

    Every jar's checksum is verified on every call. Several processes may call this at once: one downloads, the others wait. A cache that
    has all jars is only read, so it may be part of an image. Raises JarsError for a malformed lock file, a failed download or a jar with
    another checksum.
    """
    jars = parse_lock(lock.read_text(encoding="utf-8"), source=str(lock))
    cache = cache_dir()
    if _missing(jars, cache):
        with _locked(cache):
            # Another process may have downloaded them while this one waited.
            if missing := _missing(jars, cache):
                _download(missing, cache, progress)
    return [_cached_path(jar, cache) for jar in jars]


def cache_dir() -> Path:
    """Return the folder of the jars: spark-outbox/jars under $XDG_CACHE_HOME, or under ~/.cache without it.

    Raises JarsError for a user who has no home: no name, as in OpenShift's containers, and no HOME.
    """
    configured = os.environ.get("XDG_CACHE_HOME")
    try:
        root = Path(configured) if configured else Path.home() / ".cache"
    except RuntimeError as error:
        raise JarsError(f"user {os.geteuid()} has no home folder to keep jars in. {_ELSEWHERE}") from error
    return root / "spark-outbox" / "jars"


def parse_lock(text: str, *, source: str) -> list[Jar]:
    """Return the jars of a lock file's text. Raises JarsError naming `source` and the bad line."""
    jars: list[Jar] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        fields = line.split()
        if (
            len(fields) != 3
            or not _COORDINATE.fullmatch(fields[0])
            or not _is_plain_jar_name(fields[1])
            or not _SHA256.fullmatch(fields[2])
        ):
            raise JarsError(
                f"{source}, line {number}: expected 'group:artifact:version  filename.jar  sha256', "
                f"found {line!r}; "
                f"regenerate the file with: python -m spark_job.spark.jars --relock {source}"
            )
        jars.append(Jar(*fields))
    return jars


def parse_roots(text: str) -> list[Root]:
    """Return the `# root` lines of a lock file's text."""
    lines = (line.removeprefix(_ROOT).split() for line in text.splitlines() if line.startswith(_ROOT))
    return [Root(fields[0], _WITH_DEPENDENCIES in fields[1:]) for fields in lines]


def relock(lock: Path) -> list[Jar]:
    """Resolve a lock file's roots again and rewrite it with the result. Returns the pinned jars.

    Raises JarsError if the file names no root, or a root cannot be downloaded.
    """
    roots = parse_roots(lock.read_text(encoding="utf-8"))
    if not roots:
        raise JarsError(f"{lock} has no line '{_ROOT}group:artifact:version' to start from; add one")
    with tempfile.TemporaryDirectory() as scratch:
        found = download(roots, Path(scratch), with_poms=True, on_downloaded=lambda: None)
        jars = sorted(
            (Jar(coordinate, _filename(coordinate), _sha256(path)) for coordinate, path in found.items()),
            key=lambda jar: jar.coordinate,
        )
    head = ["# Regenerate: python -m spark_job.spark.jars --relock PATH_OF_THIS_FILE"]
    head += [f"{_ROOT}{r.coordinate}{' ' + _WITH_DEPENDENCIES if r.with_dependencies else ''}" for r in roots]
    body = [f"{jar.coordinate}  {jar.filename}  {jar.sha256}" for jar in jars]
    lock.write_text("\n".join([*head, *body]) + "\n", encoding="utf-8")
    return jars


def _is_plain_jar_name(name: str) -> bool:
    return name.endswith(".jar") and "/" not in name


def _filename(coordinate: str) -> str:
    _, artifact, version = coordinate.split(":")
    return f"{artifact}-{version}.jar"


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _cached_path(jar: Jar, cache: Path) -> Path:
    # The folder is named by content, so that two lock files may pin the same name differently.
    return cache / jar.sha256[:16] / jar.filename


def _missing(jars: list[Jar], cache: Path) -> list[Jar]:
    return [jar for jar in jars if not _is_intact(jar, cache)]


def _is_intact(jar: Jar, cache: Path) -> bool:
    path = _cached_path(jar, cache)
    return path.is_file() and _sha256(path) == jar.sha256


@contextmanager
def _locked(cache: Path) -> Iterator[None]:
    try:
        cache.mkdir(parents=True, exist_ok=True)
        lock = (cache / ".lock").open("w")
    except OSError as error:
        if error.errno not in _NOT_OURS:
            raise
        raise JarsError(
            f"jars are missing in {cache}, and it cannot be written: {error}. {_ELSEWHERE}"
        ) from error
    with lock as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _download(jars: list[Jar], cache: Path, progress: Progress | None) -> None:
    downloaded = 0

    def on_downloaded() -> None:
        nonlocal downloaded
        downloaded += 1
        if progress is not None:
            progress(downloaded, len(jars))

    if progress is not None:
        progress(0, len(jars))
    # Inside the cache, so that the final rename stays on one file system and is atomic.
    with tempfile.TemporaryDirectory(prefix=".download-", dir=cache) as scratch:
        roots = [Root(jar.coordinate, with_dependencies=False) for jar in jars]
        found = download(roots, Path(scratch), with_poms=False, on_downloaded=on_downloaded)
        for jar in jars:
            _admit(jar, found.get(jar.coordinate), cache)


def _admit(jar: Jar, downloaded: Path | None, cache: Path) -> None:
    """Move a downloaded jar into the cache. Raises JarsError if it is missing or not the pinned one."""
    if downloaded is None:
        raise JarsError(
            f"{jar.coordinate} was not downloaded; try again, or name a mirror in {SETTINGS_VARIABLE}"
        )
    actual = _sha256(downloaded)
    if actual != jar.sha256:
        raise JarsError(
            f"{jar.coordinate}: the downloaded jar has sha256 {actual}, but {jar.sha256} is pinned; "
            f"it was not used. Check the mirror in {SETTINGS_VARIABLE}; "
            "if the change is intended, run python -m spark_job.spark.jars --relock"
        )
    target = _cached_path(jar, cache)
    target.parent.mkdir(exist_ok=True)
    downloaded.replace(target)


def main(arguments: list[str] | None = None) -> None:
    """Download the jars of a lock file and print their paths, or regenerate the lock file."""
    parser = argparse.ArgumentParser(prog="python -m spark_job.spark.jars", description=main.__doc__)
    parser.add_argument(
        "lock",
        nargs="?",
        type=Path,
        default=Path(str(files("spark_job.spark") / "jars.lock")),
        help="default: the job's own",
    )
    parser.add_argument("--relock", action="store_true", help="resolve the file's roots again and rewrite it")
    options = parser.parse_args(arguments)
    try:
        if options.relock:
            print(f"{options.lock}: {len(relock(options.lock))} jars pinned")
        else:
            print(*resolve(options.lock), sep="\n")
    except JarsError as error:
        parser.exit(1, f"{error}\n")


if __name__ == "__main__":
    main()
