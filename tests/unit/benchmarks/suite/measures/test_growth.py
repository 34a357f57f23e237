"""Each point of growth comes in several batches, whatever its backlog: else nothing would be measured that is warm."""

import pytest

from benchmarks.suite.measures.growth import Sizes, backlog, expected_s, largest_batch


@pytest.mark.parametrize("smaller", [1.0, 3.0, 10.0, 100.0, 10_000.0])
def test_a_backlog_is_several_batches(smaller: float) -> None:
    for point in Sizes().points:
        events = backlog(point, 1 / smaller) * (point.entries + 2)
        assert events >= 8 * largest_batch(point, 1 / smaller) > 0, point.name


def test_every_point_is_expected_to_take_some_time() -> None:
    assert all(expected_s(name) > 0 for name in Sizes().names())
