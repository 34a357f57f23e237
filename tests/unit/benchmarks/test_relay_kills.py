"""The points at which a relay is killed, as they are named on the command line."""

import pytest
import typer

from benchmarks.relay_kills import percentages


def test_the_points_are_sorted() -> None:
    assert percentages("60, 15,30") == [15, 30, 60]


@pytest.mark.parametrize("text", ["", "15,", "0", "100", "-5", "1.5", "fifty"])
def test_anything_but_percentages_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="--at"):
        percentages(text)
