"""Any record in a progress topic: a position, or a ValueError that the reader turns into a sentence.

<which reader> <key or value>
"""

from contextlib import suppress

from contract.progress import Progress, lane_of_key, progress_key
from publisher.replay.progress_record import ReplayProgress


def check_record(data: bytes) -> None:
    """Fail where anything but ValueError is raised, or where what was read is not what would be written again."""
    reader, given = _READERS[(data[0] if data else 0) % len(_READERS)], data[1:]
    with suppress(ValueError):
        reader(given)


def _lane(value: bytes) -> None:
    found = Progress.decode(value)
    assert Progress.decode(found.encode()) == found
    assert "\0" not in (found.cursor.session_key or "") + (found.after.session_key or ""), (
        "Postgres cannot be asked for this key"
    )


def _replay(value: bytes) -> None:
    found = ReplayProgress.decode(value)
    assert ReplayProgress.decode(found.encode()) == found
    assert "\0" not in (found.cursor.session_key or ""), "Postgres cannot be asked for this key"


def _key(value: bytes) -> None:
    found = lane_of_key(value)
    assert found is None or lane_of_key(progress_key(*found)) == found


_READERS = (_lane, _replay, _key)
