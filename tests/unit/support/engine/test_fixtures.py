"""Where no containers can be had: an error for CI and for whoever asked for them, a conspicuous NOT RUN for a person."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.containers.fixtures import containers_are_a_must
from tests.support.paths import ROOT
from tests.support.servers.choice import SERVERS_VARIABLE, containers_are_wanted

_TESTS = "def test_containers(engine): pass\ndef test_other(): pass\n"


def _run(tmp_path: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["tests.support.containers.fixtures"]\n')
    (tmp_path / "test_it.py").write_text(_TESTS)
    # Nothing on this PATH, so neither an engine nor the means to start one.
    nothing = {"PATH": str(tmp_path), "PYTHONPATH": str(ROOT), "DOCKER_HOST": "unix:///nowhere.sock"}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "--rootdir",
        str(tmp_path),
        "-p",
        "no:cacheprovider",
        "test_it.py",
    ]
    return subprocess.run(
        command,
        cwd=tmp_path,
        env=nothing | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_a_person_is_told_at_the_end_what_was_not_run_and_why(tmp_path: Path) -> None:
    result = _run(tmp_path)
    *before, last = result.stdout.strip().splitlines()
    assert result.returncode == 0, result.stdout
    assert "1 passed, 1 skipped" in last
    block = "\n".join(before[-5:])
    assert "NOT RUN: no containers on this machine" in block
    assert "NOT RUN  test_it.py::test_containers" in block
    assert "No container engine answers on unix:///nowhere.sock" in block


def test_whoever_wants_no_engine_gets_none(tmp_path: Path) -> None:
    result = _run(tmp_path, OUTBOX_TEST_ENGINE="none")
    assert result.returncode == 0, result.stdout
    assert "NOT RUN  test_it.py::test_containers" in result.stdout
    assert _run(tmp_path, OUTBOX_TEST_ENGINE="none", CI="1").returncode == 1


@pytest.mark.parametrize("asked", [{"CI": "true"}, {SERVERS_VARIABLE: "containers"}])
def test_a_run_that_must_have_containers_fails(tmp_path: Path, asked: dict[str, str]) -> None:
    result = _run(tmp_path, **asked)
    assert result.returncode == 1
    assert "1 passed, 1 error" in result.stdout.strip().splitlines()[-1]
    assert "No container engine answers" in result.stdout
    assert "NOT RUN" not in result.stdout


def test_what_asks_for_containers() -> None:
    assert not containers_are_a_must({})
    for no in ("", "0", "false", "False", "no"):
        assert not containers_are_a_must({SERVERS_VARIABLE: "devstack", "CI": no})
    for yes in ("1", "true", "github"):
        assert containers_are_a_must({"CI": yes})
    assert containers_are_a_must({SERVERS_VARIABLE: "containers"})
    with pytest.raises(ValueError, match="'podman'; it can be 'devstack'"):
        containers_are_wanted({SERVERS_VARIABLE: "podman"})
