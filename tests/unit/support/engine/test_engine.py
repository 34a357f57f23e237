"""Which engine is taken, and how its commands fail: with a `docker` on the PATH that only pretends."""

from pathlib import Path

import pytest

from tests.support.engine.engine import Engine, open_engine
from tests.support.engine.errors import EngineError


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A PATH with a `docker` that says where it was sent and what it was asked, and fails at `fail`."""
    docker = tmp_path / "docker"
    docker.write_text(
        '#!/bin/sh\necho "$DOCKER_HOST $*"\n[ "$1" != fail ] || { echo went wrong >&2; exit 3; }\n'
    )
    docker.chmod(0o755)
    return {"PATH": f"{tmp_path}:/bin:/usr/bin", "DOCKER_HOST": "unix:///theirs.sock"}


def test_an_engine_that_answers_is_used_as_it_is(environment: dict[str, str]) -> None:
    with open_engine(environment) as engine:
        assert not engine.is_ours
        assert engine.run("ps", "--all").stdout == "unix:///theirs.sock ps --all\n"


def test_the_context_in_use_leads_to_the_engine_for_every_program(environment: dict[str, str]) -> None:
    del environment["DOCKER_HOST"]
    docker = Path(environment["PATH"].partition(":")[0]) / "docker"
    docker.write_text('#!/bin/sh\n[ "$1" != context ] || echo unix:///of-the-context.sock\n')
    with open_engine(environment) as engine:
        assert engine.environment["DOCKER_HOST"] == "unix:///of-the-context.sock"


@pytest.mark.parametrize("address", ["tcp://10.1.2.3:2375", "ssh://build@server"])
def test_an_engine_on_another_machine_is_refused_at_once(environment: dict[str, str], address: str) -> None:
    with (
        pytest.raises(EngineError, match=f"leads to {address}"),
        open_engine(environment | {"DOCKER_HOST": address}),
    ):
        pass


def test_a_command_that_fails_tells_what_it_said(environment: dict[str, str]) -> None:
    with pytest.raises(EngineError, match=r"'docker fail' failed with exit code 3:\n.*fail\nwent wrong"):
        Engine(environment, is_ours=False).run("fail")


def test_a_failure_that_is_asked_about_is_an_answer(environment: dict[str, str]) -> None:
    assert Engine(environment, is_ours=False).run("fail", check=False).returncode == 3
