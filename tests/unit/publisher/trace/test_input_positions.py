"""What a person pastes is taken for what it is, and nothing else."""

import pytest

from contract.positions import OutboxId, RecordPosition, parse_position
from publisher.trace.input_positions import Candidate, LetterMatch, PositionMatches


def test_four_parts_are_an_outbox_id_and_three_a_position() -> None:
    assert parse_position(" H5X-iWMvQOyOXnCD3lD0kQ/0/68/3 ") == OutboxId("H5X-iWMvQOyOXnCD3lD0kQ", 0, 68, 3)
    assert parse_position("shop.funnel/0/510") == RecordPosition("shop.funnel", 0, 510)
    assert str(parse_position("t/1/2/3")) == "t/1/2/3"
    assert OutboxId("t", 1, 2, 3).end == RecordPosition("t", 1, 2)


@pytest.mark.parametrize(
    "text", ["", "key", "t/1", "t/1/x", "/1/2", "t/1/2/3/4", "t/-1/2", "t/1/²", f"t/1/{2**63}"]
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="neither an outbox-id"):
        parse_position(text)


def test_a_session_that_only_spans_the_offset_is_no_exact_find() -> None:
    found = PositionMatches(
        ["id"],
        [Candidate("a", 1, "id", 0, 5, 9, True), Candidate("b", 1, "id", 0, 2, 20, False)],
        [LetterMatch(3, "c", "no_start", "open", 1), LetterMatch(4, None, "malformed", "open", 1)],
    )
    assert found.keys(exact=True) == ["a", "c"]
    assert found.keys(exact=False) == ["a", "b", "c"]
