"""The cache of open sessions on the executor's disk. Losing it costs a rebuild, and nothing else.

If the state that the ledger names is not here or is damaged, the task reads the sessions from Kafka again (task.py, `_open`; rebuild.py).

Each partition has a folder, with one file for each state, named by the state's digest, and files that the states share:

    <cache>/<outbox uuid>/<topic id>-<partition>/<digest>.sessions      the names of its segments and chunks, counts, a checksum
                                                /<hash>.segment         named by a hash of the content
                                                /<random>.events

The digest identifies a state: whichever run, generation or attempt wrote the file, it has the sessions that were open. Every file is
verified: a segment must have the hash in its name; a worker that knows none of a state's segments computes the digest again; events are
compared with the checksums of their sessions when they are used. A worker remembers what it has verified (`known_files`), so that a
batch costs only what it changes. Nothing is unpickled.
These checks find damage, not forgery. To prevent forgery, a folder to which other users may write is not used, nor a link to a folder.
Files are written under another name and then renamed, so that none is incomplete. They are not synced: losing one costs a rebuild.
"""

import contextlib
import os
import re
import secrets
import shutil
import stat
import struct
import time
from collections.abc import Iterable, Mapping, Set
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any

import mmh3
import orjson
import pyarrow as pa

from service.lifecycle.fault_points import reach
from spark_job.assembly import known_files
from spark_job.assembly.slices import Slice
from spark_job.sessions.clock import LastRecords
from spark_job.sessions.errors import DamagedStateError
from spark_job.sessions.state.chunks import EventChunk
from spark_job.sessions.state.digests import EntrySum
from spark_job.sessions.state.live_sessions import Layer, LiveSessions, Totals
from spark_job.sessions.state.open_state import HeldChunk, OpenState
from spark_job.sessions.state.segments import Segment

_MAGIC = b"spark-outbox open sessions 3\n"
_HEAD_BYTES = len(_MAGIC) + 32
"""Size of the magic and the checksum."""
_ABANDONED_S = 7 * 86_400.0
_SWEEP_EVERY_S = 3_600.0
_SEGMENT_NAME = re.compile(r"[0-9a-f]{32}\.segment")
_CHUNK_NAME = re.compile(r"[0-9a-f]{32}\.events")

_UNUSABLE = (OSError, ValueError, LookupError, TypeError, ArithmeticError, struct.error, DamagedStateError)
"""What reading raises if a file is damaged."""

Part = Segment | EventChunk
Parts = Iterable[bytes | memoryview]


class SessionCache:
    """One partition's folder. A problem of the disk costs a rebuild, at once or later; `problem` describes it."""

    def __init__(self, root: str, outbox_uuid: str, of: Slice) -> None:
        self._folder = Path(root).expanduser() / outbox_uuid / f"{of.topic_id}-{of.partition}"
        self._names: dict[int, str] = {}
        self._held: list[Part] = []
        self._at_hand = ""  # the newest state that this attempt knows to be complete on the disk
        self.problem = ""
        """Why the cache could not be used or written, for the log; empty if it could."""

    def load(self, wanted: str) -> OpenState | None:
        """Return the state with this digest; None if it is absent or damaged."""
        try:
            self._check_owner()
            state = self._state(self._read(wanted), wanted)
        except FileNotFoundError:
            return None
        except _UNUSABLE as error:
            self.problem = f"{self._folder / wanted}.sessions cannot be used: {error!r}"
            self.discard(wanted)
            return None
        self._at_hand = wanted
        return state

    def check_unchanged(self) -> None:
        """Raise DamagedStateError if a file in use may have changed since it was verified. Events are compared when they are used."""
        segments = [self._names[id(part)] for part in self._held if isinstance(part, Segment)]
        if changed := [name for name in segments if known_files.KNOWN.is_changed(self._folder / name)]:
            raise DamagedStateError(
                f"somebody has written to {self._folder / changed[0]} while it was in use"
            )

    def store(self, state: OpenState, before: Set[str]) -> None:
        """Keep this state and, for a repeated attempt, the states with the digests `before`; remove all others.

        New files have no events of closed sessions: after an erasure has removed the cache, a rebuild must not bring them back.

        Raises DamagedStateError if a chunk that the state shares with an earlier one is damaged.
        """
        try:
            if state.digest and state.digest != self._at_hand:
                self._folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._folder.mkdir(mode=0o700, exist_ok=True)
                self._check_owner()
                state = state.without_closed({part for part in self._held if isinstance(part, EventChunk)})
                named = {
                    id(part): self._names.get(id(part)) or self._write_part(part) for part in _parts(state)
                }
                reach("task.during_cache")
                self._held, self._names = _parts(state), named
                body = orjson.dumps(_described(state, named))
                self._write(f"{state.digest}.sessions", [_MAGIC, _hash([body]).encode(), body])
            self._clean({state.digest, *before})
            self._sweep()
        except OSError as error:
            self.problem = f"open sessions were not kept in {self._folder}: {error}"

    def discard(self, named: str) -> None:
        """Remove a damaged state."""
        with contextlib.suppress(OSError):
            self._check_owner()
            (self._folder / f"{named}.sessions").unlink()

    def _read(self, wanted: str) -> dict[str, Any]:
        """Read the description that `_described` made."""
        content = (self._folder / f"{wanted}.sessions").read_bytes()
        if not content.startswith(_MAGIC):
            raise DamagedStateError("it has another format")
        checksum, body = content[len(_MAGIC) : _HEAD_BYTES], content[_HEAD_BYTES:]
        if _hash([body]).encode() != checksum:
            raise DamagedStateError("it is not as it was written")
        found: dict[str, Any] = orjson.loads(body)
        kinds = {"segments": _SEGMENT_NAME, "chunks": _CHUNK_NAME}
        if not all(pattern.fullmatch(name) for kind, pattern in kinds.items() for name, *_ in found[kind]):
            raise DamagedStateError("it names no files")
        return found

    def _state(self, found: dict[str, Any], wanted: str) -> OpenState:
        """Return the described state. Raises DamagedStateError unless it has the digest `wanted`."""
        last = None if found["last"] is None else LastRecords(*found["last"])
        (low, high, count), others = found["totals"][:3], found["totals"][3:]
        state = OpenState(
            LiveSessions((), Totals(EntrySum(low, high, count), *others)), (), last, found["gone"]
        )
        names = [name for name, *_ in found["segments"]]
        if state.digest == wanted:
            is_new = not any(known_files.KNOWN.get(self._folder / name) for name in names)
            layers = [Layer(self._segment(name), *numbers) for name, *numbers in found["segments"]]
            live = replace(state.live, layers=tuple(layers))
            held = tuple(HeldChunk(self._chunk(name), *numbers) for name, *numbers in found["chunks"])
            proven = LiveSessions.counted([layer.segment for layer in layers]) if is_new else live
            state = replace(state, live=proven, held=held)
        if state.digest != wanted or sum(layer.live for layer in state.live.layers) != len(state.live):
            raise DamagedStateError("its contents do not have the digest in its name")
        self._held = _parts(state)
        names += [name for name, *_ in found["chunks"]]
        self._names = {id(part): name for part, name in zip(self._held, names, strict=True)}
        return state

    def _segment(self, name: str) -> Segment:
        def read() -> Segment:
            content = _mapped(self._folder / name)
            if _hash([content]) != name.removesuffix(".segment"):
                raise DamagedStateError(f"{name} does not have the hash in its name")
            return Segment.decoded(content)

        return known_files.KNOWN.get_or_read(self._folder / name, read)

    def _chunk(self, name: str) -> EventChunk:
        return known_files.KNOWN.get_or_read(
            self._folder / name, lambda: EventChunk.decoded(_mapped(self._folder / name))
        )

    def _write_part(self, part: Part) -> str:
        content = part.encoded()
        is_segment = isinstance(part, Segment)
        name = f"{_hash(content)}.segment" if is_segment else f"{secrets.token_hex(16)}.events"
        self._write(name, content)
        # The next batch reads the mapped file, so that the memory can be freed.
        read = type(part).decoded
        known_files.KNOWN.get_or_read(self._folder / name, lambda: read(_mapped(self._folder / name)))
        return name

    def _write(self, name: str, parts: Parts) -> None:
        path = self._folder / f".{name}.{secrets.token_hex(4)}"
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with open(descriptor, "wb", closefd=True) as file:
                file.writelines(parts)
            path.rename(self._folder / name)
        except BaseException:
            with contextlib.suppress(OSError):
                path.unlink()
            raise

    def _check_owner(self) -> None:
        """Raise PermissionError if another user might plant a file here, or cause the removal of a file in another folder."""
        _require_own(self._folder.parent, 0o022)
        _require_own(self._folder, 0o077)

    def _clean(self, keep: Set[str]) -> None:
        """Remove all files but those of the states `keep`. What another attempt is writing may be among them: its state is then lost."""
        kept = set()
        with contextlib.suppress(FileNotFoundError):
            self._check_owner()
            for name in keep - {""}:
                with contextlib.suppress(*_UNUSABLE):
                    found = self._read(name)
                    kept |= {f"{name}.sessions", *(part for part, *_ in found["segments"] + found["chunks"])}
            for entry in os.scandir(self._folder):
                if entry.name not in kept:
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(entry.path)

    def _sweep(self) -> None:
        """Once an hour, remove the folders of partitions that were not stored here for a week: other machines process them now."""
        outbox = self._folder.parent
        now, mark = time.time(), outbox / ".swept"
        with contextlib.suppress(FileNotFoundError):  # nothing was ever stored here
            _require_own(outbox, 0o022)
            with contextlib.suppress(FileNotFoundError):
                if now - mark.stat().st_mtime < _SWEEP_EVERY_S:
                    return
            mark.touch(mode=0o600)
            for entry in os.scandir(outbox):
                if entry.is_dir(follow_symlinks=False) and now - entry.stat().st_mtime > _ABANDONED_S:
                    shutil.rmtree(entry.path, ignore_errors=True)


def _require_own(folder: Path, forbidden: int) -> None:
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & forbidden:
        raise PermissionError(f"{folder} must be a folder of this user alone (mode 0700), and no link")


def _parts(state: OpenState) -> list[Part]:
    return [*(layer.segment for layer in state.live.layers), *state.chunks]


def _described(state: OpenState, names: Mapping[int, str]) -> dict[str, Any]:
    """Describe a state, except for what is in other files. `names`: the names of those files."""
    hashes, *others = state.live.totals
    return {
        "segments": [[names[id(segment)], *numbers] for segment, *numbers in state.live.layers],
        "totals": [*hashes, *others],
        "chunks": [[names[id(chunk)], *numbers] for chunk, *numbers in state.held],
        "last": None if state.last is None else astuple(state.last),
        "gone": state.gone,
    }


def _hash(parts: Parts) -> str:
    found = mmh3.mmh3_x64_128()
    for part in parts:
        found.update(part)
    return found.digest().hex()


def _mapped(path: Path) -> memoryview:
    """Map a file's bytes. Unlike Python's `mmap`, this keeps no descriptor open."""
    if path.stat().st_size == 0:
        return memoryview(b"")
    with pa.memory_map(str(path)) as file:
        return memoryview(file.read_buffer()).cast("B")
