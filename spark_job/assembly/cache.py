"""The open sessions on the executor's disk: worth keeping, free to lose.

For each partition a folder, in it a file for each state, named by the state's digest, and the chunks that the states share:

    <cache>/<outbox uuid>/<topic id>-<partition>/<digest>.sessions
                                                /<random>.events

A state is its digest, so its name says all: whichever run, generation or attempt wrote it, it is what was open. What is read is never
trusted: the table must have the digest, and the events are compared with the table's checksums when they are used. Nothing is unpickled.
These find damage; a forger would get by them. So that there is none, nobody else may write to a folder, and no link is followed to one.
Files are written under another name and renamed, so that there are none by halves. They are not synced: losing one costs a rebuild.
"""

import contextlib
import mmap
import os
import re
import secrets
import shutil
import stat
import time
from collections.abc import Iterable, Set
from pathlib import Path

import orjson

from service.lifecycle.fault_points import reach
from spark_job.assembly.slices import Slice
from spark_job.sessions.errors import DamagedStateError
from spark_job.sessions.state.binary import BinaryReader, aligned
from spark_job.sessions.state.chunks import EventChunk
from spark_job.sessions.state.open_sessions import digest
from spark_job.sessions.state.open_state import OpenState

_MAGIC = b"spark-outbox open sessions 1\n\0\0\0"
_ABANDONED_S = 7 * 86_400.0
_SWEEP_EVERY_S = 3_600.0
_CHUNK_NAME = re.compile(r"[0-9a-f]{32}\.events")


class SessionCache:
    """One partition's folder. Problems of the disk cost a rebuild, or the saving of the next one; they are told by `problem`."""

    def __init__(self, root: str, outbox_uuid: str, of: Slice) -> None:
        self._folder = Path(root).expanduser() / outbox_uuid / f"{of.topic_id}-{of.partition}"
        self._names: dict[int, str] = {}
        self._held: list[EventChunk] = []
        self._at_hand = ""  # the state that is whole on the disk, as far as this attempt has seen
        self.problem = ""
        """What is wrong with the cache, for the log; empty where nothing is."""

    def load(self, wanted: str) -> OpenState | None:
        """Return the state of this digest, None where it is not here or damaged."""
        try:
            self._check_owner()
            table, names = self._read(wanted)
            if digest(table) != wanted:
                raise DamagedStateError("its contents are not what its name says")
            chunks = [EventChunk.decoded(_mapped(self._folder / name)) for name in names]
            state = OpenState.decoded(table, chunks)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, DamagedStateError) as error:
            self.problem = f"{self._folder / wanted}.sessions cannot be used: {error}"
            self.discard(wanted)
            return None
        self._remember(chunks, names)
        self._at_hand = wanted
        return state

    def store(self, state: OpenState, before: Set[str]) -> None:
        """Keep this state and, for an attempt that is made again, those of the digests `before`; remove the others."""
        try:
            if state.digest and state.digest != self._at_hand:
                self._folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._folder.mkdir(mode=0o700, exist_ok=True)
                self._check_owner()
                names = [self._names.get(id(chunk)) or self._write_chunk(chunk) for chunk in state.chunks]
                reach("task.during_cache")
                self._remember(state.chunks, names)
                refs = orjson.dumps(names)
                table = state.encoded
                head = len(table).to_bytes(8, "little") + len(refs).to_bytes(8, "little")
                self._write(f"{state.digest}.sessions", aligned([_MAGIC, head, table, refs]))
            self._clean({state.digest, *before})
            self._sweep()
        except OSError as error:
            self.problem = f"open sessions were not kept in {self._folder}: {error}"

    def discard(self, named: str) -> None:
        """Remove a state that is damaged."""
        with contextlib.suppress(OSError):
            self._check_owner()
            (self._folder / f"{named}.sessions").unlink()

    def _read(self, wanted: str) -> tuple[memoryview, list[str]]:
        """The encoded table and the names of the chunks."""
        reader = BinaryReader(_mapped(self._folder / f"{wanted}.sessions"))
        if bytes(reader.take(len(_MAGIC))) != _MAGIC:
            raise DamagedStateError("it has another format")
        sizes = reader.take(16)
        table = reader.take(int.from_bytes(sizes[:8], "little"))
        names = orjson.loads(reader.take(int.from_bytes(sizes[8:], "little")))
        if not isinstance(names, list) or not all(
            isinstance(name, str) and _CHUNK_NAME.fullmatch(name) for name in names
        ):
            raise DamagedStateError("it names no files")
        return table, names

    def _write_chunk(self, chunk: EventChunk) -> str:
        name = f"{secrets.token_hex(16)}.events"
        self._write(name, chunk.encoded())
        return name

    def _write(self, name: str, parts: Iterable[bytes | memoryview]) -> None:
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
        """Another user of the machine must not be able to plant a file, nor to have one of another folder removed."""
        for folder, forbidden in ((self._folder.parent, 0o022), (self._folder, 0o077)):
            found = folder.lstat()
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & forbidden:
                raise PermissionError(
                    f"{folder} must be a folder of this user alone (mode 0700), and no link"
                )

    def _clean(self, keep: Set[str]) -> None:
        """Remove everything else. What another attempt is just writing may go with it: that one's state is not kept then."""
        kept = set()
        with contextlib.suppress(FileNotFoundError):
            self._check_owner()
            for name in keep - {""}:
                with contextlib.suppress(OSError, ValueError, DamagedStateError):
                    kept |= {f"{name}.sessions", *self._read(name)[1]}
            for entry in os.scandir(self._folder):
                if entry.name not in kept:
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(entry.path)

    def _sweep(self) -> None:
        """Once an hour, remove the folders of partitions that have not been stored here for a week: other machines have them now."""
        outbox = self._folder.parent
        now, mark = time.time(), outbox.with_name(f".{outbox.name}.swept")
        with contextlib.suppress(FileNotFoundError):
            if now - mark.stat().st_mtime < _SWEEP_EVERY_S:
                return
        with contextlib.suppress(FileNotFoundError):  # nothing was ever stored here
            mark.touch(mode=0o600)
            for entry in os.scandir(outbox):
                if entry.is_dir(follow_symlinks=False) and now - entry.stat().st_mtime > _ABANDONED_S:
                    shutil.rmtree(entry.path, ignore_errors=True)

    def _remember(self, chunks: Iterable[EventChunk], names: Iterable[str]) -> None:
        self._held = list(chunks)  # an id is its chunk's for as long as that lives
        self._names = {id(chunk): name for chunk, name in zip(self._held, names, strict=True)}


def _mapped(path: Path) -> memoryview:
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            return memoryview(b"")
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
