"""Whatever is logged or printed has a form in JSON."""

import json
from datetime import UTC, datetime
from uuid import UUID

import pytest

from service.json_text import json_text


@pytest.mark.parametrize(
    ("value", "read"),
    [
        ({"at": datetime(2026, 1, 1, tzinfo=UTC), 1: UUID(int=1)}, {"at": "2026-01-01T00:00:00+00:00", "1": str(UUID(int=1))}),
        ({"path": "/tmp/\udcff"}, {"path": "/tmp/\udcff"}),
        ([1 << 70], [1 << 70]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("indented", [False, True])
def test_it_can_be_read_again(value: object, read: object, *, indented: bool) -> None:
    text = json_text(value, indented=indented)
    assert json.loads(text) == read
    assert ("\n" in text) is indented
