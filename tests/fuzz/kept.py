"""Any bytes in the cache of open sessions: the sessions as they were, or none.

    <change> 0x1E <change> 0x1E …

A change is four numbers, a byte each, and text: in which file, where (two bytes), how many bytes it takes away; the text is put there.
"""

import functools
from contextlib import suppress
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import pyarrow as pa

from spark_job.assembly import known_files
from spark_job.assembly.cache import SessionCache
from spark_job.assembly.known_files import KnownFiles
from spark_job.sessions.assembler import assemble
from spark_job.sessions.errors import DamagedStateError
from spark_job.sessions.settings import AssemblySettings
from spark_job.sessions.state.chunks import EventChunk
from spark_job.sessions.state.open_state import OpenState
from spark_job.sessions.state.segments import Segment
from tests.support.histories.tasks import UUID, slice_of
from tests.support.reference.assembled import table
from tests.support.reference.model import Record

_RULES = AssemblySettings(event_id_path=("id",), max_events=3)
_KEYS = ("a", "b", "ü", "over")
_FOLDER = Path(UUID, "id-0")


def check_cache(data: bytes) -> None:
    """Fail where a changed cache gives other sessions than were kept, or raises what a task does not expect."""
    state, files = _kept()
    changed = {name: bytearray(content) for name, content in files.items()}
    for change in data.split(b"\x1e"):
        which, high, low, removed = change[:4].ljust(4, b"\0")
        content = changed[sorted(files)[which % len(files)]]
        at = (high << 8 | low) % (len(content) + 1)
        content[at : at + removed] = change[4:]
    with (
        TemporaryDirectory(prefix="spark-outbox-fuzz-") as root,
        patch.object(known_files, "KNOWN", KnownFiles()),
    ):
        Path(root, _FOLDER).mkdir(mode=0o700, parents=True)
        for name, content in changed.items():
            Path(root, _FOLDER, name).write_bytes(content)
        reader = SessionCache(root, UUID, slice_of())
        found = reader.load(state.digest)
        assert found is not None or reader.problem
        if found is not None:
            with suppress(DamagedStateError):
                assert _closed(found) == _closed(state), "other sessions were open than had been kept"
    for name, content in changed.items():
        decode = EventChunk.decoded if name.endswith(".events") else Segment.decoded
        with suppress(DamagedStateError):
            decode(memoryview(bytes(content)))


@functools.cache
def _kept() -> tuple[OpenState, dict[str, bytes]]:
    """Open sessions in two chunks and a tombstone, and the files that keep them."""
    state, numbers = OpenState.empty(), count()
    with (
        TemporaryDirectory(prefix="spark-outbox-fuzz-") as root,
        patch("secrets.token_hex", lambda size: f"{next(numbers):0{2 * size}x}"),
    ):
        keeper = SessionCache(root, UUID, slice_of())
        for begin, kinds in ((0, ("start", "entry")), (20, ("entry", "entry"))):
            events = [(kind, key) for kind in kinds for key in _KEYS]
            before, state = (
                state,
                assemble(state, _new(begin, events[: len(events) - (begin == 20)]), _RULES).state,
            )
            keeper.store(state, {before.digest})
        files = {path.name: path.read_bytes() for path in Path(root, _FOLDER).iterdir()}
    stored = f"{state.digest}.sessions"
    return state, {
        name: content for name, content in files.items() if not name.endswith(".sessions") or name == stored
    }


def _new(begin: int, events: list[tuple[str, str]]) -> pa.Table:
    values = [
        f'{{"event_type":"{kind}_event","session_key":"{key}","id":"{begin + number}"}}'.encode()
        for number, (kind, key) in enumerate(events)
    ]
    return table([Record(0, begin + at, begin + at, None, value) for at, value in enumerate(values)], _RULES)


def _closed(state: OpenState) -> tuple[object, ...]:
    """What comes out when every session ends."""
    found = assemble(state, _new(100, [("end", key) for key in _KEYS]), _RULES)
    closed = [
        (session.key, session.offsets(), session.timestamps_ms(), session.raws()) for session in found.closed
    ]
    return closed, found.letters, found.state.digest
