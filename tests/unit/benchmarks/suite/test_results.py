"""Rounds are kept one by one, with where and how they were taken; a run that was cut off goes on where it was."""

import json
import math
from pathlib import Path

import pytest
import typer

from benchmarks.suite.results import Results, ResultsError, measurement, spread, summary, values

LABELS = {"warm": "sessions/s", "p99": "p99, s"}


def begun(folder: Path, **parameters: object) -> Results:
    return Results(folder / "speed.json", title="Speed", labels=LABELS, parameters=parameters)


def test_median_and_spread_of_rounds() -> None:
    found = spread([3.0, 1.0, 10.0, 2.0])
    assert (found.median, found.least, found.greatest, found.rounds) == (2.5, 1.0, 10.0, 4)


def test_a_round_that_never_came_is_the_greatest_and_counts_in_the_median() -> None:
    assert spread([1.0, math.inf, 2.0]).median == 2.0
    assert math.isinf(spread([1.0, math.inf, math.inf]).median)


def test_each_round_is_in_the_file_at_once_with_how_it_was_taken(tmp_path: Path) -> None:
    begun(tmp_path, sessions=10).add("ours", {"warm": 5.0, "p99": math.inf}, load_before=0.25)
    document = json.loads((tmp_path / "speed.json").read_text())
    (one,) = document["rounds"]
    assert one["measured"] == {"warm": 5.0, "p99": None}
    assert one["command"].startswith("python ")
    assert one["load_before"] == 0.25
    assert one["commit"]
    assert "cores" in one["machine"]
    assert document["parameters"] == {"sessions": 10}
    assert values(document, "ours", "", "p99") == [math.inf]


def test_a_run_that_was_cut_off_takes_only_the_missing_rounds(tmp_path: Path) -> None:
    first = begun(tmp_path)
    assert [who for who, _ in first.missing(["ours", "peer"], 2)] == ["ours", "peer", "peer", "ours"]
    first.add("ours", {"warm": 1.0}, load_before=0.0)
    again = begun(tmp_path)
    assert [who for who, _ in again.missing(["ours", "peer"], 2)] == ["peer", "peer", "ours"]
    again.add("peer", {"warm": 2.0}, load_before=0.0)
    assert [len(list(begun(tmp_path).missing(["ours", "peer"], rounds))) for rounds in (1, 3)] == [0, 4]


def test_of_several_points_only_those_are_taken_that_are_missing(tmp_path: Path) -> None:
    kept, points = begun(tmp_path), ["10", "100"]
    kept.add("ours", {"warm": 1.0}, "100", load_before=0.0)
    kept.add("peer", {"warm": 1.0}, "10", load_before=0.0)
    kept.add("peer", {"warm": 1.0}, "100", load_before=0.0)
    assert list(kept.missing(["ours", "peer"], 2, points)) == [
        ("ours", ["10"]),
        ("peer", points),
        ("ours", points),
    ]


def test_rounds_with_other_parameters_are_not_mixed(tmp_path: Path) -> None:
    begun(tmp_path, sessions=10).add("ours", {"warm": 1.0}, load_before=0.0)
    with pytest.raises(ResultsError, match="other parameters"):
        begun(tmp_path, sessions=20)


def take(folder: Path, sessions: int) -> None:
    """A command whose second contender fails."""
    with measurement(folder, "speed", "Speed", LABELS, {"sessions": sessions}) as (kept, failures):
        kept.add("ours", {"warm": 1.0}, load_before=0.0)
        with failures.tolerated("peer"):
            raise SystemExit("events are missing")


def test_a_command_says_which_rounds_failed_and_keeps_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(typer.Exit) as ended:
        take(tmp_path, sessions=10)
    assert ended.value.exit_code == 1
    assert "peer: SystemExit: events are missing" in capsys.readouterr().err
    assert [who for who, _ in begun(tmp_path, sessions=10).missing(["ours", "peer"], 1)] == ["peer"]


def test_a_command_refuses_a_file_that_it_cannot_continue(tmp_path: Path) -> None:
    begun(tmp_path, sessions=10).add("ours", {"warm": 1.0}, load_before=0.0)
    with pytest.raises(typer.BadParameter, match="other parameters"):
        take(tmp_path, sessions=20)


def test_the_summary_has_each_contender_and_point(tmp_path: Path) -> None:
    kept = begun(tmp_path)
    for warm in (1.0, 2.0, 6.0):
        kept.add("ours", {"warm": warm}, "100", load_before=0.0)
    kept.add("peer", {"p99": math.inf}, "100", load_before=0.0)
    document = json.loads((tmp_path / "speed.json").read_text())
    assert document["summary"] == summary(document)
    assert document["summary"] == [
        {
            "contender": "ours",
            "point": "100",
            "measures": {"warm": {"median": 2.0, "min": 1.0, "max": 6.0}},
        },
        {
            "contender": "peer",
            "point": "100",
            "measures": {"p99": {"median": None, "min": None, "max": None}},
        },
    ]
