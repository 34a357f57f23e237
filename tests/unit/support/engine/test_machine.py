"""Whether we can start an engine of our own, and what is said where we cannot."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.engine.engine import OWN_VARIABLE, open_engine
from tests.support.engine.errors import EngineError
from tests.support.engine.machine import Machine, _has_cgroups

READY = Machine(system="Linux", is_root=True, has_apt=True, has_cgroups=True, may_unshare=True)


def test_root_on_a_linux_with_everything_can_start_an_engine() -> None:
    assert READY.obstacle() is None


def test_what_is_missing_is_no_obstacle_where_apt_can_install_it() -> None:
    machine = replace(READY, missing=frozenset({"dockerd", "docker", "debootstrap"}))
    assert machine.obstacle() is None
    assert machine.packages() == ["debootstrap", "docker.io"]


@pytest.mark.parametrize(
    ("machine", "reason"),
    [
        (replace(READY, system="Darwin"), "needs Linux, this is Darwin"),
        (replace(READY, is_root=False), "needs root"),
        (replace(READY, has_cgroups=False), "no control groups"),
        (replace(READY, may_unshare=False), "does not let us make namespaces"),
        (
            replace(READY, has_apt=False, missing=frozenset({"dockerd"})),
            "there is no apt-get to install what one needs: dockerd",
        ),
    ],
)
def test_each_obstacle_is_named(machine: Machine, reason: str) -> None:
    assert reason in (machine.obstacle() or "")


def test_control_groups_are_found_among_the_mounts(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text("proc /proc proc rw 0 0\ncgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n")
    assert _has_cgroups(mounts)
    mounts.write_text("proc /proc proc rw 0 0\n/dev/vda /cgroup ext4 rw 0 0\n")
    assert not _has_cgroups(mounts)


def test_without_engine_and_without_root_the_reason_and_the_way_out_are_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(Machine, "this", classmethod(lambda cls: replace(READY, is_root=False)))
    nowhere = {"PATH": str(tmp_path), "DOCKER_HOST": "unix:///nowhere.sock"}
    with pytest.raises(EngineError) as caught, open_engine(nowhere):
        pass
    said = str(caught.value)
    assert "No container engine answers on unix:///nowhere.sock" in said
    assert "needs root" in said
    assert "Start a Docker engine" in said


def test_an_unknown_wish_is_refused_before_anything_is_started() -> None:
    with (
        pytest.raises(EngineError, match="'mine'; it can be 'own', 'none'"),
        open_engine({OWN_VARIABLE: "mine"}),
    ):
        pass


def test_none_is_neither_used_nor_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        Machine, "this", classmethod(lambda cls: pytest.fail("looked for a way to start one"))
    )
    with pytest.raises(EngineError, match="is 'none'"), open_engine({OWN_VARIABLE: "none"}):
        pass
