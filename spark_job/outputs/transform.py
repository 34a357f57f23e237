"""Load the user's transform by name, check it before the query starts, and refuse in workers one whose module differs from the run's.

What happens if it raises: transform_failures.py.
"""

import hashlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable, Iterable
from functools import cache
from importlib.machinery import PathFinder
from types import ModuleType
from typing import Any

from service.errors import SettingsError
from service.private_file import others_may_write
from spark_job.api import OutputEvent, Session
from spark_job.outputs.settings import TransformOf

Transform = Callable[[Session], Iterable[OutputEvent]]


class CodeChangedError(Exception):
    """The worker's code is not the run's: a file was edited, or replaced by another version, under the running job."""


@cache
def load(name: str) -> Transform:
    """Import `module:function`, from the working directory if its top-level module is only there.

    Raises SettingsError if the import fails, if the function does not exist, is a coroutine or cannot be called with one session, or if the
    module is only in a working directory that others may write to.
    """
    module_name, _, function_name = name.partition(":")
    _look_in_working_directory(module_name.partition(".")[0])
    try:
        module = importlib.import_module(module_name)
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:  # a user's module may raise anything while it is imported
        raise SettingsError(
            f"[transform] function = {name!r}: importing {module_name} failed: {type(error).__name__}: {error}. "
            "Run from the folder that holds it, under a name that no installed module has, or install it."
        ) from error
    function = getattr(module, function_name, None)
    if not callable(function):
        raise SettingsError(
            f"[transform] function = {name!r}: {module_name} ({getattr(module, '__file__', 'built in')}) has no function {function_name!r}"
        )
    try:
        inspect.signature(function).bind(object())
    except TypeError as error:
        raise SettingsError(
            f"[transform] function = {name!r} cannot be called with one session: {error}"
        ) from error
    if inspect.iscoroutinefunction(function):
        raise SettingsError(
            f"[transform] function = {name!r} is a coroutine; a transform is a plain function"
        )
    return function  # type: ignore[no-any-return]


def _look_in_working_directory(module: str) -> None:
    """Put the working directory at the end of the path, if a module is there and nowhere else.

    Raises SettingsError if other users may write there: they would decide which code runs, of this module and of each later import.
    """
    here = os.getcwd()
    if here in sys.path or _is_elsewhere(module):
        return
    found = PathFinder.find_spec(module, [here])
    if found is None:
        return
    for each in (here, *(found.submodule_search_locations or ()), found.origin):
        if each is not None and others_may_write(os.stat(each)):
            raise SettingsError(
                f"[transform] function: {module} is in the working directory only, and others than you may write to {each!r}, so it is not "
                f"run. `chmod go-w {each}`, if it is yours; if it is another user's whom you trust, put {here} into PYTHONPATH"
            )
    sys.path.append(here)


def _is_elsewhere(module: str) -> bool:
    """Return whether Python finds a module already. A folder without `__init__.py` may have its modules in several places."""
    try:
        found = importlib.util.find_spec(module)
    except ValueError:  # a module without a spec, such as `__main__`
        return True
    return found is not None and found.origin is not None


@cache
def load_for_run(of: TransformOf) -> Transform:
    """Return the transform of a run, in one of the run's workers.

    Raises SettingsError as `load`, CodeChangedError if its module has changed.
    """
    function = load(of.function)
    if fingerprint(function) != of.fingerprint:
        raise CodeChangedError(
            f"{of.function} was edited or replaced while the job runs: its module has the fingerprint {fingerprint(function)}, "
            f"the run began with {of.fingerprint}. Start the job again to take the new one, or put the old one back"
        )
    return function


def fingerprint(function: Transform) -> str:
    """Return a hash of the source of the transform's module, recorded with each batch."""
    module = inspect.getmodule(inspect.unwrap(function)) or inspect.getmodule(type(function))
    return hashlib.sha256(_source(module) or repr(function).encode()).hexdigest()[:16]


def _source(module: ModuleType | None) -> bytes | None:
    """Return the source file of a module, also within a zip; None if it has none."""
    loader: Any = getattr(module, "__loader__", None)
    origin = getattr(module, "__file__", None)
    if origin is None or not origin.endswith(".py") or not hasattr(loader, "get_data"):
        return None
    return bytes(loader.get_data(origin))


def share_working_directory() -> None:
    """Let Spark's Python workers import from the working directory if this process does. Call before Spark starts."""
    here = os.getcwd()
    paths = [each for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each]
    if here not in paths and ({here, ""} & set(sys.path)):
        os.environ["PYTHONPATH"] = os.pathsep.join([*paths, here])
