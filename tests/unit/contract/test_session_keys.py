"""Both services put a session key into the same lane."""

from collections import Counter

import pytest

from contract.session_keys import lane_hash


@pytest.mark.guarantee(103)
def test_lanes_are_even_and_stable() -> None:
    lanes = Counter(lane_hash(f"key-{n}".encode()) % 8 for n in range(8_000))
    assert min(lanes.values()) > 850
    assert lane_hash("schlüssel".encode()) == 2_735_808_766
