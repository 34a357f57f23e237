"""A round that fails costs none of the others, and the end says which failed."""

import pytest
import typer

from benchmarks.support.rounds import FailedRounds, announce, minutes


@pytest.mark.parametrize(
    "error", [RuntimeError("gone"), AssertionError("gone"), KeyError("gone"), SystemExit("gone")]
)
def test_whatever_a_round_fails_of_the_next_is_taken(
    error: BaseException, capsys: pytest.CaptureFixture[str]
) -> None:
    failures, taken = FailedRounds(), []
    for name in ("one", "two", "three"):
        with failures.tolerated(name) as load:
            assert load >= 0
            if name == "two":
                raise error
            taken.append(name)
    assert taken == ["one", "three"]
    with pytest.raises(typer.Exit) as ended:
        failures.finish()
    assert ended.value.exit_code == 1
    said = capsys.readouterr().err
    assert f"two: {type(error).__name__}" in said
    assert "Traceback" in said


def test_an_interruption_ends_all() -> None:
    with pytest.raises(KeyboardInterrupt), FailedRounds().tolerated("one"):
        raise KeyboardInterrupt


def test_without_a_failure_the_end_is_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    FailedRounds().finish()
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("seconds", "rounds", "said"),
    [
        (0.0, 0, "Nothing is missing"),
        (40.0, 1, "1 round: about 40 s"),
        (630.0, 3, "3 rounds: about 10 minutes"),
    ],
)
def test_how_long_it_will_take_is_said(
    seconds: float, rounds: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    announce(seconds, rounds)
    assert said in capsys.readouterr().err


def test_short_and_long_times() -> None:
    assert (minutes(89.0), minutes(91.0)) == ("89 s", "2 minutes")
