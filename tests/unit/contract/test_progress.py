"""A progress record: the publisher continues from it, and the job learns from it what was delivered."""

from dataclasses import replace
from unittest.mock import Mock

import orjson
import pytest

from contract.cursor import Cursor
from contract.progress import Progress, Totals, lane_of_key
from tests.support.lanes import RECORD


def test_a_record_reads_back_as_it_was_written_and_so_does_one_of_before_its_newer_fields() -> None:
    assert Progress.decode(RECORD.encode()) == RECORD
    assert RECORD.key() == b"1/0"
    full = replace(RECORD, total=Totals(100, 2000, 3), resumed="--from batch 5")
    assert Progress.decode(full.encode()) == full
    nowhere = replace(RECORD, cursor=Cursor(0), commit_id=None)
    assert Progress.decode(nowhere.encode()) == nowhere
    fields = orjson.loads(RECORD.encode())
    for added in ("parked", "total", "resumed"):
        del fields[added]
    assert Progress.decode(orjson.dumps(fields)) == RECORD


@pytest.mark.guarantee(180)
@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"{}",
        b"[]",
        b'{"version": 2}',
        b'{"version": 1, "outbox_uuid": "x"}',
        b'{"version": 1, "outbox_uuid": 5}',
        RECORD.encode().replace(b'"seq":7', b'"seq":"7"'),
        RECORD.encode().replace(b"[3,null]", b'["3",null]'),
        RECORD.encode().replace(b"[3,null]", b"[3]"),
        RECORD.encode().replace(b"[3,null]", rb'[3,"a\u0000"]'),
        RECORD.encode().replace(b'"seq":7', b'"seq":9223372036854775808'),
        RECORD.encode().replace(b'"seq":7', b'"seq":true'),
    ],
)
def test_what_is_not_a_progress_record_is_refused(value: bytes) -> None:
    with pytest.raises(ValueError, match=r"progress record|badly formed"):
        Progress.decode(value)


def test_what_is_not_a_progress_record_is_not_quoted() -> None:
    """Its text becomes the lane's reason to stop, which more people read than the topic; records have session keys."""
    value = replace(RECORD, cursor=Cursor(3, "alice")).encode().replace(b'"seq":7', b'"seq":"7"')
    with pytest.raises(ValueError, match="not a progress record") as refused:
        Progress.decode(value)
    assert "alice" not in str(refused.value)


def test_a_value_that_is_too_large_is_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists take 34 times their JSON's size in memory, and compressed they take no place in a topic."""
    monkeypatch.setattr("contract.progress.orjson.loads", Mock(side_effect=AssertionError))
    with pytest.raises(ValueError, match="not a progress record, of 2097154 bytes"):
        Progress.decode(b"[" * (2 << 20) + b"[]")


@pytest.mark.parametrize("field", ["version", "cluster_id", "outbox_uuid", "resumed"])
def test_what_others_write_to_the_topic_fills_no_log_and_no_table(field: str) -> None:
    fields = orjson.loads(RECORD.encode()) | {field: "\x1b" * 900_000}
    with pytest.raises(ValueError, match=r"progress record|badly formed") as refused:
        Progress.decode(orjson.dumps(fields))
    assert len(str(refused.value)) < 1_000


@pytest.mark.parametrize("key", [None, b"", b"1", b"1/", b"1/0 ", b"-1/0", b"of something else"])
def test_a_record_under_another_key_is_of_no_lane(key: bytes | None) -> None:
    assert lane_of_key(key) is None
    assert lane_of_key(RECORD.key()) == (1, 0)
