"""Rounds in a file of results: who is next, and what a second run adds."""

import json
from pathlib import Path

import pytest
import typer

from benchmarks.support.kept import KeptRounds
from benchmarks.support.report import Report

WHO = ["publisher", "Debezium", "bare producer"]


def kept(folder: Path | None, rows: int = 1) -> KeptRounds:
    return KeptRounds(Report("relay", {"rows": rows}, {"events_s": "events/s"}), folder, "relay", "A backlog")


def test_who_goes_first_alternates() -> None:
    assert list(kept(None).turns(WHO, 2)) == WHO + WHO[::-1]


def test_a_run_goes_on_where_the_one_before_was_cut_off(tmp_path: Path) -> None:
    first = kept(tmp_path)
    for whose in list(first.turns(WHO, 2))[:4]:
        first.add(whose, {"events_s": 1.0}, load_before=0.0)
    again = kept(tmp_path)
    assert list(again.turns(WHO, 2)) == ["Debezium", "publisher"]


def test_a_round_that_failed_is_listed_at_the_end_and_the_others_are_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rounds = kept(tmp_path)
    for whose in rounds.turns(WHO, 1):
        with rounds.failures.tolerated(whose) as load:
            if whose == "Debezium":
                raise SystemExit("events are missing")
            rounds.add(whose, {"events_s": 1.0}, load_before=load)
    with pytest.raises(typer.Exit) as ended:
        rounds.finish(None, as_json=False)
    assert ended.value.exit_code == 1
    assert "Debezium: SystemExit: events are missing" in capsys.readouterr().err
    assert kept(tmp_path).turns(WHO, 1) == ["Debezium"]


def test_the_publisher_is_ours_in_the_file(tmp_path: Path) -> None:
    rounds = kept(tmp_path)
    rounds.add("publisher", {"events_s": 2.0}, load_before=0.5)
    document = json.loads((tmp_path / "relay.json").read_text("utf-8"))
    (one,) = document["rounds"]
    assert (one["contender"], one["measured"], one["load_before"]) == ("ours", {"events_s": 2.0}, 0.5)


def test_rounds_with_other_parameters_are_not_mixed(tmp_path: Path) -> None:
    kept(tmp_path).add("publisher", {"events_s": 2.0}, load_before=0.0)
    with pytest.raises(typer.BadParameter, match="other parameters"):
        kept(tmp_path, rows=2)


def test_a_report_without_new_rounds_can_be_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Report("relay", {}, {"events_s": "events/s"}).finish(None, as_json=False)
    assert "events/s" in capsys.readouterr().out
