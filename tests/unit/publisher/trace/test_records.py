"""What is read of a record's headers, whoever wrote them."""

from types import SimpleNamespace
from typing import Any

import pytest

from publisher.trace import records
from service.settings import KafkaSettings


@pytest.mark.parametrize(
    ("revision", "read"), [(b"7", 7), (b"", 0), (b"x", 0), (b"1" * 5_000, 0), (b"9" * 300, 0)]
)
def test_a_stranger_s_revision_ends_no_trace(
    revision: bytes, read: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python reads no number of more than 4,300 digits."""
    message: Any = SimpleNamespace(
        headers=lambda: [("outbox-id", b"a/0/9/0"), ("outbox-revision", revision)],
        topic=lambda: "t",
        partition=lambda: 0,
        offset=lambda: 5,
    )
    monkeypatch.setattr(records, "_records", lambda *_: iter([message]))
    found = records.copies(KafkaSettings(), {}, {"a/0/9/0"})
    assert [(copy.outbox_id, copy.revision, copy.offset) for copy in found] == [("a/0/9/0", read, 5)]
