"""Send our code to executors on other machines: our four packages and the transform's module, in one zip that Spark distributes.

A task's imports (pyarrow, numpy, orjson, confluent-kafka, mmh3, structlog; with schemas also requirements/schema-registry.txt; and the
transform's imports) must be on the executors: installed, or in an environment that `spark.archives` unpacks there (docs/cluster.md).
"""

import importlib.util
import io
import sysconfig
import zipfile
from collections.abc import Iterator
from pathlib import Path

from pyspark import SparkContext

import contract
import db
import service
import spark_job

_PACKAGES = (spark_job, contract, service, db)
_NAME = "spark-outbox.zip"
# The earliest time that a zip can have. It is fixed, so that equal code gives equal bytes.
_EPOCH = (1980, 1, 1, 0, 0, 0)


def ship_code(context: SparkContext, function: str, folder: Path) -> None:
    """Send the code of a task to all executors, later ones included. `function`: the transform, `module:function`."""
    archive = folder / _NAME
    archive.write_bytes(zipped(modules(function)))
    context.addPyFile(str(archive))


def modules(function: str) -> Iterator[tuple[str, Path]]:
    """Yield (name in the zip, file) of each module that a task needs: our packages, and the transform's module if it is not installed.

    All modules of a package are sent: the transform may import any of them.
    """
    for package in _PACKAGES:
        yield from _package(Path(package.__path__[0]), package.__name__.replace(".", "/"))
    top = function.partition(":")[0].partition(".")[0]
    found = importlib.util.find_spec(top)
    if found is None or top in {package.__name__.partition(".")[0] for package in _PACKAGES}:
        return
    if found.submodule_search_locations:
        # A package without `__init__.py` may be found twice, by two paths to its folder.
        for folder in {Path(each).resolve() for each in found.submodule_search_locations}:
            if not _is_installed(folder):
                yield from _package(folder, top)
    elif found.origin is not None and not _is_installed(Path(found.origin)):
        yield Path(found.origin).name, Path(found.origin)


def zipped(files: Iterator[tuple[str, Path]]) -> bytes:
    """Return a zip of the files; equal files give equal bytes."""
    out = io.BytesIO()
    found = sorted(files)
    # Python finds a package without `__init__.py` by the entry of its folder.
    folders = {f"{parent.as_posix()}/" for name, _ in found for parent in Path(name).parents if parent.name}
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for folder in sorted(folders):
            archive.writestr(zipfile.ZipInfo(folder, _EPOCH), b"")
        for name, path in found:
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), path.read_bytes(), zipfile.ZIP_DEFLATED)
    return out.getvalue()


def _package(folder: Path, name: str) -> Iterator[tuple[str, Path]]:
    for path in folder.rglob("*.py"):
        yield f"{name}/{path.relative_to(folder).as_posix()}", path


def _is_installed(path: Path) -> bool:
    """Return whether a module came with an installed distribution, which must be installed on the executors, too."""
    return any(path.is_relative_to(sysconfig.get_path(kind)) for kind in ("purelib", "platlib", "stdlib"))
