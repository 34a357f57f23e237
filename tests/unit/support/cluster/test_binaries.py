"""The node's programs are compiled where the cache has none of their sources, and only there."""

import shutil
from pathlib import Path

import pytest

from tests.support.cluster import binaries
from tests.support.cluster.errors import ClusterError


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of them; Go is not there."""
    copied = tmp_path / "programs"
    shutil.copytree(binaries._SOURCES, copied)
    monkeypatch.setattr(binaries, "_SOURCES", copied)
    monkeypatch.setenv("PATH", "")
    return copied


def test_the_programs_of_the_same_sources_are_kept(sources: Path, tmp_path: Path) -> None:
    said: list[str] = []
    kept = tmp_path / f"programs-{binaries._sources_hash()}"
    kept.mkdir()
    assert binaries.programs(tmp_path, said.append) == kept
    assert said == []


def test_changed_sources_need_go(sources: Path, tmp_path: Path) -> None:
    (tmp_path / f"programs-{binaries._sources_hash()}").mkdir()
    with (sources / "go.mod").open("a") as file:
        file.write("// changed\n")
    with pytest.raises(ClusterError, match=r"https://go\.dev/dl"):
        binaries.programs(tmp_path, print)
