"""The fingerprint of the job's code in a task: a worker with another version refuses to work.

The transform has a fingerprint of its own: outputs/transform.py.
"""

import hashlib
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

from spark_job.outputs.transform import CodeChangedError


@cache
def task_code_fingerprint() -> str:
    """Return a hash of the source files on which a task's results depend."""
    digest = hashlib.sha256()
    for module in _modules():
        digest.update(module.name.encode() + b"\0" + module.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def require_code(fingerprint: str) -> None:
    """Raise CodeChangedError unless this worker's code has the driver's fingerprint."""
    if task_code_fingerprint() != fingerprint:
        raise CodeChangedError(
            f"this worker has another version of spark_job than the driver of the run: {task_code_fingerprint()}, not "
            f"{fingerprint}. Install the same version everywhere, then start the job again"
        )


def _modules() -> Iterator[Traversable]:
    for folder in ("input", "sessions", "outputs", "assembly"):
        yield from _below(files("spark_job") / folder)
    for module in ("api.py", "models.py"):
        yield files("spark_job") / module
    yield from _below(files("service") / "formats")
    for module in ("reading.py", "record_headers.py"):
        yield files("service") / "kafka" / module
    yield from _below(files("contract"))


def _below(folder: Traversable) -> Iterator[Traversable]:
    """Yield a folder's modules and those of its packages, in the same order everywhere."""
    for each in sorted(folder.iterdir(), key=lambda each: each.name):
        if each.name.endswith(".py"):
            yield each
        elif each.is_dir() and each.name != "__pycache__":
            yield from _below(each)
