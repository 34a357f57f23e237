"""`publisher find` reads no more of Kafka than it must."""

from publisher.trace.outputs import layered

P0, P1 = ("t", 0), ("t", 1)


def test_far_deliveries_are_read_apart_and_overlapping_ones_together() -> None:
    ranges = [(P0, (9_000_000, 9_000_003)), (P0, (0, 3)), (P0, (2, 8)), (P0, (0, 3)), (P1, (5, 5))]
    assert layered(ranges) == [{P0: (0, 8), P1: (5, 5)}, {P0: (9_000_000, 9_000_003)}]


def test_a_range_within_another_one_does_not_shorten_it() -> None:
    assert layered([(P0, (0, 100)), (P0, (10, 20)), (P0, (90, 95))]) == [{P0: (0, 100)}]


def test_nothing_recorded_is_nothing_to_read() -> None:
    assert layered([]) == []
