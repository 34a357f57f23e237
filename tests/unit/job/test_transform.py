"""A transform is found, tried and named before anything is read."""

from pathlib import Path

import pytest

from db.errors import SettingsError
from spark_job import transform


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    name = f"user_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(
        "def good(session): return []\ndef none(): return []\nasync def later(s): ...\nnumber = 3\n"
    )
    (tmp_path / f"{name}_broken.py").write_text("raise RuntimeError('no licence')\n")
    return name


def test_a_function_in_the_working_directory_is_found(module: str) -> None:
    assert transform.load(f"{module}:good").__name__ == "good"


@pytest.mark.parametrize(
    ("suffix", "message"),
    [
        ("_absent:f", "importing .* failed: ModuleNotFoundError"),
        ("_broken:f", "RuntimeError: no licence"),
        (":absent", "has no function 'absent'"),
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
