"""Whatever happens to a partition's folder and whoever works there: a state is read back as it was, or not at all, and no file is left."""

import random
from pathlib import Path

import orjson
import pytest

from spark_job.assembly import cache, known_files
from spark_job.assembly.cache import SessionCache
from spark_job.assembly.known_files import KnownFiles
from spark_job.sessions.assembler import assemble
from spark_job.sessions.errors import DamagedStateError
from spark_job.sessions.settings import AssemblySettings
from spark_job.sessions.state import live_sessions, open_state
from spark_job.sessions.state.open_state import OpenState
from tests.support.histories.tasks import UUID, slice_of
from tests.support.reference.assembled import table
from tests.support.reference.model import Record

RULES = AssemblySettings(timeout_ms=400, grace_ms=50, max_events=6, max_bytes=10_000)
FOLDER = Path(UUID, "id-0")
MOST_FILES = 3 * (1 + 10 + 13)
"""Of three states: a description, segments, chunks."""


class Killed(BaseException):
    """The worker's end."""


class Partition:
    """One partition's states, which are the truth, and a folder that several workers write to."""

    def __init__(self, root: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.chance, self.folder = random.Random(seed), root / FOLDER
        self._root, self._monkeypatch = root, monkeypatch
        self._workers = [KnownFiles() for _ in range(3)]
        self._offset, self._keys = 0, [f"{number}" for number in range(30)]
        self.states = [OpenState.empty()]
        self.read = 0

    def worker(self) -> SessionCache:
        """Another task, in one of the workers' processes."""
        self._monkeypatch.setattr(known_files, "KNOWN", self.chance.choice(self._workers))
        known_files.KNOWN.forget_removed()
        return SessionCache(str(self._root), UUID, slice_of())

    def batch(self) -> None:
        """The next state, made of the newest one as the cache has it, or as it is."""
        cache_of, before = self.worker(), self.states[-1]
        found = self.loaded(cache_of, before)
        records = [self._record() for _ in range(self.chance.choice([1, 1, 3, 20]))]
        truth = assemble(before, table(records, RULES), RULES)
        if found is not None:
            try:
                made = assemble(found, table(records, RULES), RULES)
            except DamagedStateError:
                cache_of.discard(before.digest)
                return
            assert [each.raws() for each in made.closed] == [each.raws() for each in truth.closed]
            assert (made.letters, made.state.digest) == (truth.letters, truth.state.digest)
        self.states.append(truth.state)
        committed = self.states[-3:][0]
        try:
            cache_of.store(truth.state if found is None else made.state, {before.digest, committed.digest})
        except Killed:
            return
        assert len(list(self.folder.glob("*"))) <= MOST_FILES

    def loaded(self, of: SessionCache, state: OpenState) -> OpenState | None:
        """What the cache has for a state: the same, or nothing."""
        found = of.load(state.digest) if state.digest else None
        if found is not None:
            self.read += 1
            assert found.sessions.encoded == state.sessions.encoded
            assert (found.digest, found.live.totals) == (state.digest, state.live.totals)
            assert (found.safe_offset, found.last) == (state.safe_offset, state.last)
            anew = OpenState.of(found.sessions, last=found.last)
            assert (found.live.oldest, found.live.quietest) == (anew.live.oldest, anew.live.quietest)
            assert anew.digest == state.digest
        return found

    def zombie(self) -> None:
        """An attempt of long ago keeps what it has, and takes away what others have kept."""
        self.worker().store(self.chance.choice(self.states), set())

    def twice(self) -> None:
        """Two attempts keep one state; the second one has found it in Kafka, not here."""
        newest = self.states[-1]
        for _ in range(2):
            self.worker().store(
                OpenState.of(newest.sessions, newest.chunks).with_last(newest.last), {newest.digest}
            )

    def killed(self) -> None:
        with self._monkeypatch.context() as patch:
            patch.setattr(cache, "reach", interrupted)
            self.batch()

    def restarted(self) -> None:
        self._workers[self.chance.randrange(3)] = KnownFiles()

    def damaged(self) -> None:
        """A file is garbled, cut off, emptied or gone, or there is one of nobody."""
        files = [path for path in self.folder.glob("*") if path.is_file()]
        if not files:
            return
        path = self.chance.choice(sorted(files))
        data = bytearray(path.read_bytes())
        match self.chance.randrange(4):
            case 0:
                path.unlink()
            case 1 if data:
                data[self.chance.randrange(len(data))] ^= 1 << self.chance.randrange(8)
                # Another file of that name, lest what others have mapped is cut off under them.
                path.unlink()
                path.write_bytes(data)
            case 2:
                path.unlink()
                path.write_bytes(data[: self.chance.randrange(len(data) + 1)])
            case _:
                (self.folder / f"{self.chance.random()}.segment").write_bytes(b"of nobody")

    def finish(self) -> None:
        """Nothing is open any more, and nothing is left."""
        self.worker().store(OpenState.empty(), {""})
        assert list(self.folder.glob("*")) == []
        for known in self._workers:
            known.forget_removed()
            assert len(known) == 0

    def _record(self) -> Record:
        self._offset += 1
        kind = self.chance.choice(["start", "start", "entry", "entry", "entry", "end"])
        key = self.chance.choice(self._keys)
        value = orjson.dumps({"event_type": f"{kind}_event", "session_key": key, "n": self._offset})
        ts = 10 * self._offset + self.chance.choice([0, 0, 0, -30, 100])
        return Record(0, self._offset, ts, key, value)


def interrupted(_point: str) -> None:
    raise Killed


@pytest.mark.guarantee(39)
@pytest.mark.parametrize("seed", range(6))
def test_a_state_is_read_back_as_it_was_or_not_at_all_and_no_file_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(live_sessions, "_MOST_SEGMENTS", 3 + seed)
    monkeypatch.setattr(live_sessions, "_MERGED_SEGMENTS", 2)
    monkeypatch.setattr(open_state, "_MOST_CHUNKS", 3 + seed)
    monkeypatch.setattr(open_state, "_MERGED_CHUNKS", 2)
    of = Partition(tmp_path, seed, monkeypatch)
    for _ in range(150):
        of.chance.choices(
            [of.batch, of.restarted, of.damaged, of.zombie, of.twice, of.killed], [30, 3, 2, 1, 1, 1]
        )[0]()
    assert of.read > 50
    of.finish()
