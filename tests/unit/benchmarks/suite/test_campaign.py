"""A measurement's rounds: each contender in turn, and one that fails costs none of the others."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from benchmarks.peers.contender import Contender
from benchmarks.suite.campaign import Campaign
from benchmarks.suite.load.workload import Bench
from benchmarks.suite.results import Results
from benchmarks.support.servers import Servers


def begun(folder: Path, rounds: int = 2) -> Campaign:
    """Of two contenders, on no servers."""
    kept = Results(folder / "speed.json", title="Speed", labels={"warm": "x"}, parameters={})
    chosen = {name: cast(Contender, SimpleNamespace(name=name)) for name in ("ours", "peer")}
    return Campaign(Bench(cast(Servers, None)), kept, chosen, rounds)


def taken(folder: Path) -> list[str]:
    return [one["contender"] for one in json.loads((folder / "speed.json").read_text())["rounds"]]


def test_the_rounds_of_a_contender_that_fails_are_missing_and_all_others_are_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    failing = begun(tmp_path)

    def measure(one: Contender) -> dict[str, float]:
        if one.name == "ours":
            raise TimeoutError("too slow")
        return {"warm": 1.0}

    failing.each(measure, expected_s=60.0)
    assert taken(tmp_path) == ["peer", "peer"]
    assert failing.failures.failed == ["ours: TimeoutError: too slow"] * 2
    assert "4 rounds: about 4 minutes" in capsys.readouterr().err

    again = begun(tmp_path)
    again.each(lambda _: {"warm": 1.0}, expected_s=60.0)
    assert taken(tmp_path) == ["peer", "peer", "ours", "ours"]
    assert "2 rounds: about 2 minutes" in capsys.readouterr().err
    begun(tmp_path).each(measure, expected_s=60.0)
    assert "Nothing is missing" in capsys.readouterr().err


def test_only_the_points_that_are_missing_are_in_a_turn(tmp_path: Path) -> None:
    begun(tmp_path).kept.add("ours", {"warm": 1.0}, "10", load_before=0.0)
    left = [(one.name, points) for one, points in begun(tmp_path, rounds=1).turns(["10", "100"])]
    assert left == [("ours", ["100"]), ("peer", ["10", "100"])]
