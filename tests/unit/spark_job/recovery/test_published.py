"""The publisher's progress records as the job's start reads them: what else is in the topic is refused in words."""

from uuid import UUID

import pytest

from spark_job.recovery.published import Delivered

COMMIT = "00000000-0000-0000-0000-000000000007"
RECORD = b'{"version":1,"epoch":2,"cursor":[7,"key"],"commit_id":"%b"}' % COMMIT.encode()


def test_a_record_says_how_far_its_lane_is() -> None:
    assert Delivered.decode(RECORD) == Delivered(7, UUID(COMMIT), epoch=2)
    nowhere = RECORD.replace(b'"%b"' % COMMIT.encode(), b"null")
    assert Delivered.decode(nowhere) == Delivered(7, None, epoch=2)


@pytest.mark.parametrize(
    "value",
    [
        *(b"", b"rubbish", b"\xff", b"null", b"[]", b"{}"),
        RECORD.replace(b'"version":1', b'"version":2'),
        RECORD.replace(b'[7,"key"]', b"[]"),
        RECORD.replace(b'[7,"key"]', b'["7",null]'),
        RECORD.replace(b'[7,"key"]', b"[9223372036854775808,null]"),
        RECORD.replace(b'"epoch":2', b'"epoch":null'),
        RECORD.replace(COMMIT.encode(), b"x"),
        RECORD.replace(b'"%b"' % COMMIT.encode(), b"7"),
    ],
)
def test_what_is_not_a_progress_record_is_refused(value: bytes) -> None:
    with pytest.raises(ValueError, match="not a progress record"):
        Delivered.decode(value)
