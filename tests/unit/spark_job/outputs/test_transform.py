"""A transform is found, tried and named before anything is read."""

import importlib.util
import os
import sys
from pathlib import Path

import pytest

from service.errors import SettingsError
from spark_job.outputs import transform
from spark_job.outputs.settings import TransformOf
from spark_job.outputs.transform import CodeChangedError


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    name = f"user_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(
        "def good(session): return []\ndef none(): return []\nasync def later(s): ...\nnumber = 3\n"
    )
    (tmp_path / f"{name}_broken.py").write_text("raise RuntimeError('no licence')\n")
    (tmp_path / f"{name}_exits.py").write_text("raise SystemExit('no licence')\n")
    return name


def test_a_function_in_the_working_directory_is_found(module: str) -> None:
    assert transform.load(f"{module}:good").__name__ == "good"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory from which Python does not import by itself."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delenv("PYTHONPATH", raising=False)
    return tmp_path


def test_a_transform_is_taken_from_the_working_directory_and_no_module_of_pythons(here: Path) -> None:
    (here / "own_only.py").write_text("def f(session): return []\n")
    (here / "sched.py").touch()
    assert transform.load("own_only:f").__module__ == "own_only"
    found = importlib.util.find_spec("sched")
    assert found is not None
    assert not str(found.origin).startswith(str(here))
    transform.share_working_directory()
    transform.share_working_directory()
    assert os.environ["PYTHONPATH"] == str(here)


@pytest.mark.parametrize("is_package", [False, True], ids=["module", "package"])
@pytest.mark.parametrize("open_to_others", ["folder", "module"])
def test_a_transform_that_others_may_write_in_the_working_directory_is_not_run(
    here: Path, open_to_others: str, is_package: bool
) -> None:
    module = here / f"own_{open_to_others}_{is_package}"
    if is_package:
        (module / "inner").mkdir(parents=True)
        (module / "inner" / "shop.py").write_text("raise AssertionError('it was run')\n")
        name, file = f"{module.name}.inner.shop", module
    else:
        name, file = module.name, module.with_suffix(".py")
        file.write_text("raise AssertionError('it was run')\n")
    where = here if open_to_others == "folder" else file
    where.chmod(0o777)
    with pytest.raises(SettingsError, match=f"`chmod go-w {where}`.*put {here} into PYTHONPATH"):
        transform.load(f"{name}:f")
    assert str(here) not in sys.path
    where.chmod(0o755)
    with pytest.raises(SettingsError, match="it was run"):
        transform.load(f"{name}:f")


def test_where_others_may_write_an_installed_transform_runs_and_nothing_is_taken_from_there(
    here: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    installed = tmp_path_factory.mktemp("installed")
    (installed / "own_installed.py").write_text("def f(session): return []\n")
    (here / "own_installed.py").write_text("raise AssertionError('it was run')\n")
    (here / "own_planted.py").touch()
    sys.path.append(str(installed))
    here.chmod(0o1777)
    assert transform.load("own_installed:f").__module__ == "own_installed"
    assert importlib.util.find_spec("own_planted") is None
    transform.share_working_directory()
    assert "PYTHONPATH" not in os.environ


@pytest.mark.parametrize(
    ("suffix", "message"),
    [
        ("_absent:f", "importing .* failed: ModuleNotFoundError"),
        ("_broken:f", "RuntimeError: no licence"),
        ("_exits:f", "SystemExit: no licence"),
        (":absent", r"user_\w+\.py\) has no function 'absent'"),
        (":number", "has no function 'number'"),
        (":none", "cannot be called with one session"),
        (":later", "is a coroutine"),
    ],
)
def test_one_that_cannot_work_is_refused_before_the_query_starts(
    module: str, suffix: str, message: str
) -> None:
    with pytest.raises(SettingsError, match=message):
        transform.load(module + suffix)


def test_the_fingerprint_follows_the_source(module: str) -> None:
    function = transform.load(f"{module}:good")
    before = transform.fingerprint(function)
    source = Path(f"{module}.py")
    source.write_text(source.read_text() + "# changed\n")
    assert transform.fingerprint(function) != before


@pytest.mark.guarantee(119)
def test_a_worker_takes_the_transform_that_the_run_began_with_and_refuses_an_edited_one(module: str) -> None:
    name = f"{module}:good"
    then = TransformOf(name, transform.fingerprint(transform.load(name)), False, 1_000)
    assert transform.load_for_run(then)(None) == []  # type: ignore[arg-type]
    source = Path(f"{module}.py")
    source.write_text(source.read_text() + "# edited\n")
    transform.load_for_run.cache_clear()  # as in a worker that Spark starts later
    with pytest.raises(
        CodeChangedError, match=f"{name} was edited or replaced while the job runs.*Start the job again"
    ):
        transform.load_for_run(then)
