"""Checks of a server: what is shown of each answer, and which exit code the command ends with."""

import json
from collections.abc import Callable

import pytest
import typer

from service.commands.checks import CheckAnswer, CheckResult, Outcome, ServerCheck, run_checks, show_results


def results(*outcomes: Outcome) -> list[CheckResult]:
    """A result of each outcome."""
    return [
        CheckResult(
            f"check {number}", "delivery", outcome, "what there is", "" if outcome == "ok" else "mend it"
        )
        for number, outcome in enumerate(outcomes)
    ]


def ended(found: list[CheckResult], *, json: bool = False) -> int:
    """The exit code."""
    try:
        show_results(found, json=json)
    except typer.Exit as end:
        return end.exit_code
    return 0


@pytest.mark.parametrize(
    ("outcomes", "code"),
    [(["ok", "ok"], 0), (["ok", "warning"], 0), (["failed", "ok"], 16), (["ok", "not supported"], 16)],
    ids=str,
)
@pytest.mark.parametrize("as_json", [False, True])
def test_the_exit_code_says_whether_the_server_can_be_used(
    outcomes: list[Outcome], code: int, as_json: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended(results(*outcomes), json=as_json) == code
    if as_json:
        assert json.loads(capsys.readouterr().out)["usable"] is (code == 0)


def test_each_check_has_a_line_and_the_way_out_below(capsys: pytest.CaptureFixture[str]) -> None:
    ended(results("ok", "warning"))
    head, first, second, remedy = capsys.readouterr().out.splitlines()
    assert head.split() == ["check", "result", "needed", "for", "found"]
    assert first.split() == ["check", "0", "ok", "delivery", "what", "there", "is"]
    assert second.split() == ["check", "1", "warning", "delivery", "what", "there", "is"]
    assert remedy == "  mend it"


def test_json_has_every_field(capsys: pytest.CaptureFixture[str]) -> None:
    ended(results("failed"), json=True)
    assert json.loads(capsys.readouterr().out) == {
        "usable": False,
        "checks": [
            {
                "name": "check 0",
                "needed_for": "delivery",
                "outcome": "failed",
                "found": "what there is",
                "remedy": "mend it",
            }
        ],
    }


def raising(error: Exception) -> Callable[[str], CheckAnswer]:
    """A check that ends so."""

    def ask(_: str) -> CheckAnswer:
        raise error

    return ask


def test_a_check_that_is_refused_fails_and_the_next_one_is_asked() -> None:
    checks = [
        ServerCheck("one", "a", raising(PermissionError("not you"))),
        ServerCheck("two", "b", lambda server: CheckAnswer("ok", server)),
    ]
    found = run_checks(
        checks, "the server", lambda error: CheckAnswer("failed", str(error), "ask"), quiet=True
    )
    assert found == [
        CheckResult("one", "a", "failed", "not you", "ask"),
        CheckResult("two", "b", "ok", "the server", ""),
    ]


def test_an_error_without_an_explanation_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        run_checks([ServerCheck("one", "a", raising(ZeroDivisionError()))], "", lambda _: None, quiet=True)
