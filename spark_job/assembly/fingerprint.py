"""Which code a task runs: what a run pins, so that no worker judges or encodes by another version."""

import hashlib
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable


@cache
def task_code_fingerprint() -> str:
    """Return a hash of the source files of which a task's work depends."""
    digest = hashlib.sha256()
    for module in _modules():
        digest.update(module.name.encode() + b"\0" + module.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _modules() -> Iterator[Traversable]:
    for folder in ("input", "sessions", "assembly"):
        found = (files("spark_job") / folder).iterdir()
        yield from sorted((each for each in found if each.name.endswith(".py")), key=lambda each: each.name)
    yield files("db") / "lanes.py"
