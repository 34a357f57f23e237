"""The benchmark suite at its smallest, on real servers: figures are there, outputs are exact, the page renders. Nothing of speed."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.paths import ROOT

pytestmark = pytest.mark.faults


def run(target: Path, *command: str) -> None:
    """Run a command of the suite that writes into a folder."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OUTBOX_")}
    ran = subprocess.run(
        [sys.executable, "-m", "benchmarks.suite", *command, "--results", str(target)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )
    assert ran.returncode == 0, ran.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a run wrote its results."""
    target = tmp_path_factory.mktemp("suite")
    run(target, "smoke")
    return target


def the_round(path: Path) -> dict[str, Any]:
    """Return the only round of a file."""
    (one,) = json.loads(path.read_text("utf-8"))["rounds"]
    return dict(one)


def test_a_backlog_has_speed_cost_and_exact_outputs(folder: Path) -> None:
    one = the_round(folder / "throughput.json")
    measured = one["measured"]
    assert (measured["missing"], measured["twice"], measured["strange"]) == (0, 0, 0)
    for name in (
        "warm",
        "whole",
        "cpu_job",
        "cpu_publisher",
        "cpu_kafka",
        "memory",
        "wal_bytes",
        "stored_bytes",
    ):
        assert measured[name] > 0, name
    assert one["commit"]
    assert "benchmarks.suite smoke" in one["command"]


def test_a_steady_rate_has_latencies_and_exact_outputs(folder: Path) -> None:
    measured = the_round(folder / "latency.json")["measured"]
    assert (measured["missing"], measured["twice"], measured["strange"]) == (0, 0, 0)
    assert measured["sessions"] > 0
    assert 0 < measured["p50"] <= measured["p99"] <= measured["p999"] <= measured["greatest"]


def test_the_page_and_its_pictures_are_rendered(folder: Path) -> None:
    page = (folder / "performance.md").read_text("utf-8")
    assert "| sessions/s, warm |" in page
    assert "latency p50, s" in page
    assert "Not measured yet" not in page
    assert (folder / "throughput.svg").read_text("utf-8").startswith("<svg")


@pytest.mark.parametrize(
    ("command", "names"),
    [
        (("archive", "--megabytes", "2"), ["ours folder", "ours S3"]),
        (
            ("consumer", "--events", "4000"),
            ["ours ", "bare consumer, the same inserts ", "bare consumer, reads only "],
        ),
    ],
    ids=["archive", "consumer"],
)
def test_the_two_steps_after_the_publisher_have_figures(
    tmp_path: Path, command: tuple[str, ...], names: list[str]
) -> None:
    run(tmp_path, *command)
    document = json.loads((tmp_path / f"{command[0]}.json").read_text("utf-8"))
    assert [f"{one['contender']} {one['point']}" for one in document["rounds"]] == names
    for one in document["rounds"]:
        assert one["measured"].keys() == document["labels"].keys()
        assert min(one["measured"].values()) > 0
