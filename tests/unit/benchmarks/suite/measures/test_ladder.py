"""The highest rung that was proven, with few attempts."""

import pytest

from benchmarks.suite.measures.capacity import highest

LADDER = (100.0, 200.0, 400.0, 800.0, 1_600.0)


@pytest.mark.parametrize(
    ("most", "expected"),
    [(*pair,) for pair in zip((100, 250, 400, 5_000), (100, 200, 400, 1_600), strict=True)],
)
def test_the_highest_that_holds_is_found(most: float, expected: float) -> None:
    assert highest(LADDER, lambda rate: rate <= most, lambda rate: rate <= most) == expected


def test_nothing_holds() -> None:
    assert highest(LADDER, lambda rate: False, lambda rate: False) is None


def test_an_attempt_that_was_too_hopeful_is_corrected_by_the_proof() -> None:
    assert highest(LADDER, lambda rate: rate <= 800, lambda rate: rate <= 200) == 200


def test_what_was_not_proven_is_never_the_result() -> None:
    proven: list[float] = []

    def proof(rate: float) -> bool:
        proven.append(rate)
        return rate == 100

    assert highest(LADDER, lambda rate: True, proof) == 100
    assert proven == [1_600, 800, 400, 200, 100]


def test_few_rungs_are_attempted() -> None:
    attempts: list[float] = []

    def attempt(rate: float) -> bool:
        attempts.append(rate)
        return rate <= 7

    assert highest(range(1, 17), attempt, lambda rate: rate <= 7) == 7
    assert len(attempts) <= 5


def test_an_attempt_that_failed_by_chance_is_made_again_from_what_was_proven() -> None:
    attempts: list[float] = []

    def attempt(rate: float) -> bool:
        attempts.append(rate)
        # The first one fails whatever the rate.
        return len(attempts) > 1 and rate <= 800

    assert highest(LADDER, attempt, lambda rate: rate <= 800) == 800
