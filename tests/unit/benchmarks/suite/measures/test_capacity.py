"""A rate that cannot be held is given up as soon as that is certain."""

import pytest

from benchmarks.suite.measures.capacity import overdue


def test_what_is_under_way_is_not_overdue() -> None:
    # Sessions last up to two seconds, and a second later is in time.
    assert overdue(100.0, 3.0, 0) == 0
    assert overdue(100.0, 10.0, 800) < 0


@pytest.mark.parametrize(("came", "late"), [(700, 0), (400, 300), (0, 700)])
def test_what_has_not_come_a_second_after_its_end_is(came: int, late: int) -> None:
    assert overdue(100.0, 10.0, came) == late
