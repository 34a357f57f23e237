"""A measurement's own options and those of all, as one command; what it is called with reaches it."""

from pathlib import Path
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from benchmarks.suite.options import Asked, measurement, numbers
from benchmarks.suite.results import RESULTS

Called = list[tuple[Asked, float]]


@pytest.fixture
def called() -> Called:
    """What the command was called with."""
    return []


@pytest.fixture
def app(called: Called) -> typer.Typer:
    """An application with one measurement."""
    made = typer.Typer()

    @measurement(made, "speed", who="ours,a-peer", rounds=3)
    def measure(asked: Asked, rate: Annotated[float, typer.Option(min=1)] = 5.0) -> None:
        """How fast."""
        called.append((asked, rate))

    return made


def test_without_options_a_command_has_its_own_defaults(app: typer.Typer, called: Called) -> None:
    assert CliRunner().invoke(app, []).exit_code == 0
    ((asked, rate),) = called
    assert (asked.names, asked.rounds, asked.partitions, asked.folder, rate) == (
        ["ours", "a-peer"],
        3,
        4,
        RESULTS,
        5.0,
    )


def test_all_options_reach_the_measurement(app: typer.Typer, called: Called, tmp_path: Path) -> None:
    given = ["--rate", "7", "--contenders", "a-peer", "--rounds", "1", "--partitions", "8"]
    given += [
        "--baseline",
        str(tmp_path),
        "--setting",
        "A=1",
        "--setting",
        "B=x=y",
        "--results",
        str(tmp_path),
    ]
    ran = CliRunner().invoke(app, given)
    assert ran.exit_code == 0, ran.output
    ((asked, rate),) = called
    assert (asked.names, asked.rounds, asked.partitions, rate) == (["a-peer"], 1, 8, 7.0)
    assert (asked.baseline, asked.folder) == (tmp_path, tmp_path)
    assert asked.settings == {"A": "1", "B": "x=y"}
    assert asked.parameters(rate=rate) == {"rate": 7.0, "partitions": 8, "A": "1", "B": "x=y"}


def test_the_limits_of_options_are_kept(app: typer.Typer, called: Called) -> None:
    assert CliRunner().invoke(app, ["--rate", "0"]).exit_code == 2
    assert CliRunner().invoke(app, ["--rounds", "0"]).exit_code == 2
    assert called == []


def test_a_setting_without_a_value_is_refused() -> None:
    with pytest.raises(typer.BadParameter, match="NAME=VALUE"):
        _ = Asked(setting=["A"]).settings


def test_what_is_no_number_is_refused() -> None:
    assert numbers("10,2.5") == [10.0, 2.5]
    with pytest.raises(typer.BadParameter, match="numbers"):
        numbers("10,fast")
