"""Erases session keys, round after round until nothing is left or the time is over. After a kill, the next run of the command continues.

For each key and window of batches, at most 10,000 rows in one transaction of Postgres:

1. hold off every command that begins to need old rows: audits, resumes, replays;
2. find the rows that are delivered and that no replay needs (`outbox.rows_of_key`);
3. write their tombstones, in a transaction of Kafka;
4. delete the rows, and insert rows of `outbox.erased` for them.

After that come the key's letters, and rows and letters once more until a pass erases none: a requeue or a retry may have stored a row after
step 2. Then, if nothing is left, come the copies of the key outside of rows. The letters named by their position are erased ahead of all
keys. A session that was open when the command began may be the key's. So a key is done only after a round that began when all those
sessions had closed, and that left nothing.

Before the first round, all that the job has read of the keys is kept out of every reissue (`outbox.begin_erasure`).

The archive comes after the rounds (publisher/archive): rows move from Postgres into the archive and never back. Then the copies of the key
once more, because a replay that the archive waited for may have stopped at the key. Last, the planner's statistics, which hold samples of
keys, are renewed.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, LiteralString

import psycopg

from contract.positions import RecordPosition
from contract.session_keys import MAX_KEY_BYTES
from db import operations, windows
from db.lock_holders import refuse_strangers, take_lock
from db.statements import queries
from db.windows import Window
from publisher.erasure.archive_erasure import ArchiveErasure
from publisher.erasure.letters import ErasedLetter
from publisher.erasure.open_sessions import OpenInput, read_open_input
from publisher.erasure.tombstones import TombstoneWriter
from service.errors import FencedError, SettingsError, UnavailableError
from service.lifecycle.fault_points import reach

_ERASURE = queries("publisher.erasure", "erasure")

_PAUSE_S = 1.0
_SHOWN = 20
_POSITIONS_AT_ONCE = 100
_PASSES = 10
_KEYS_AT_ONCE = 100
_LETTERS_AT_ONCE = 100
_ROWS_AT_ONCE = 10_000
"""The most rows of a key that one transaction erases while it holds the writer lock. Each such step first reads all deliveries."""


@dataclass(slots=True)
class ErasedKey:
    """The result for one session key. `left`: what could not be erased, and what to do."""

    key_hash: str
    rows: int = 0
    sessions: int = 0
    archived_rows: int = 0
    letters: int = 0
    tombstones: int = 0
    left: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """Return the fields for JSON output."""
        return asdict(self)


def check_key(session_key: str) -> None:
    """Raise SettingsError if a text is no session key."""
    size = len(session_key.encode())
    if not size or size > MAX_KEY_BYTES or "\0" in session_key:
        raise SettingsError(
            f"a session key has 1 to {MAX_KEY_BYTES} bytes and no NUL character; one that was named has {size} bytes. Nothing was erased"
        )


class Erasure:
    """Erases session keys. `connection` must be in autocommit mode, and nothing else may use it."""

    def __init__(
        self,
        connection: psycopg.Connection[Any],
        keys: Sequence[str],
        letters: Sequence[RecordPosition] = (),
        writer: TombstoneWriter | None = None,
        archive: Callable[[], ArchiveErasure | None] = lambda: None,
    ) -> None:
        """`letters`: positions of dead letters without a key, which are erased too. `archive` opens the archive, or returns None if there
        is none; it is called after the rounds, because retention may make the first archive meanwhile.

        Raises FencedError if another erasure runs, UnavailableError if an unknown session holds the lock.
        """
        if not take_lock(connection, _ERASURE["alone"], "outbox.erasure"):
            raise FencedError("another `publisher erase` runs. Nothing was erased")
        self._connection = connection
        self._writer = writer
        self._archive = archive
        self.keys = {key: ErasedKey(self._hash(key)) for key in keys}
        self.letters = {position: ErasedLetter(str(position)) for position in letters}
        self.letters_without_key = 0

    def run(self, wait_s: float) -> None:
        """Erase until nothing is left, or for `wait_s` seconds. Raises UnavailableError, psycopg.Error."""
        self._keep_out()
        deadline = time.monotonic() + wait_s
        # Read afterwards, so that the command waits for each open session that a reissue would leave out.
        begin = read_open_input(self._connection)
        while not self._round(begin) and time.monotonic() < deadline:
            time.sleep(_PAUSE_S)
        if self.keys and (archive := self._archive()) is not None:
            self._erase_archived(archive, deadline)
        self._erase_samples()

    def look(self) -> None:
        """Count the keys' rows and letters and the named letters, and note what `run` could not erase now. Changes nothing.

        Raises ArchiveDamagedError, UnavailableError, psycopg.Error.
        """
        for position, letter in self.letters.items():
            with self._connection.transaction(force_rollback=True):
                self._erase_letter(position, letter)
        detached = self._detached()
        for key, found in self.keys.items():
            found.left = []
            for window in windows.kept(self._connection):
                for row in self._rows(key, window):
                    self._note(found, row)
                    found.rows, found.sessions = found.rows + 1, found.sessions + row.sessions
            found.letters, self.letters_without_key = self._letters(key)
            found.left += detached
        if (archive := self._archive()) is not None:
            for key, rows in archive.count(list(self.keys)).items():
                self.keys[key].archived_rows = rows

    def _keep_out(self) -> None:
        """Keep all that the job has read of the keys out of every reissue, also where no row is left that could be erased."""
        keys = list(self.keys)
        for first in range(0, len(keys), _KEYS_AT_ONCE):
            self._erase_some(
                _ERASURE["begin"], {"session_keys": keys[first : first + _KEYS_AT_ONCE]}, "kept_out"
            )

    def _erase_archived(self, archive: ArchiveErasure, deadline: float) -> None:
        while True:
            done = archive.run(list(self.keys), self._changing, self._record)
            for key, rows in done.erased.items():
                self.keys[key].archived_rows += rows
                self.keys[key].tombstones += done.tombstones[key]
            if not done.left or time.monotonic() >= deadline:
                break
            time.sleep(_PAUSE_S)
        for key, found in self.keys.items():
            found.left = list(dict.fromkeys([*found.left, *done.left, *self._erase_traces(key, found)]))

    def _erase_samples(self) -> None:
        """Renew the planner's statistics, which have samples of keys, wherever rows of the keys were erased, also by an earlier command."""
        keys = {"session_keys": list(self.keys)}
        for (partition,) in self._connection.execute(_ERASURE["partitions_of_erased"], keys).fetchall():
            try:
                with self._connection.transaction():
                    self._connection.execute(_ERASURE["erase_statistics"], {"partition": partition})
            except psycopg.errors.LockNotAvailable:
                for found in self.keys.values():
                    found.left.append(
                        f"the planner's samples of keys in {partition}, which VACUUM, CREATE INDEX or retention holds: run the command "
                        "again"
                    )

    @property
    def is_something_left(self) -> bool:
        """Whether anything of a key, or a named letter, could not be erased."""
        return any(each.left for each in self.keys.values()) or any(
            each.left for each in self.letters.values()
        )

    def _round(self, begin: OpenInput) -> bool:
        """Erase what can be erased now; return whether nothing is left."""
        open_still = read_open_input(self._connection).open_since(begin.end)
        detached = self._detached()
        for position, letter in self.letters.items():
            self._erase_letter(position, letter)
        for key, found in self.keys.items():
            self._erase_stored(key, found)
            found.left += detached
            found.left += self._erase_traces(key, found)
            if open_still:
                found.left.append(
                    f"sessions that were open when the command began are still open in {len(open_still)} input partitions "
                    f"({', '.join(open_still[:_SHOWN])}), and one may be the key's. Run the command again after the session timeout; the "
                    "job closes them when it reads records of any key in those partitions, also of a topic that [source] topics no longer "
                    "has: name it there again"
                )
        return not self.is_something_left

    def _detached(self) -> list[str]:
        """Return what may have rows of any key, and cannot be read: partitions that somebody has detached."""
        return [
            f"outbox.{table.name}, which was detached by hand, may have rows of the key: attach it (docs/audit.md) or drop it, and run the "
            "command again"
            for table in windows.detached(self._connection)
        ]

    def _erase_stored(self, key: str, found: ErasedKey) -> None:
        """Erase the key's rows and letters, until a pass erases none or `_PASSES` are over: after the rows were read, a parked row may be
        requeued, or a letter retried, which stores another row."""
        for _ in range(_PASSES):
            found.left = []
            before = found.rows + found.letters
            for window in windows.kept(self._connection):
                self._erase_rows(key, window, found)
            self._erase_letters(key, found)
            if found.rows + found.letters == before:
                return
        found.left.append(
            "rows of it are stored all the time: stop producing its events, and run the command again"
        )

    def _erase_rows(self, key: str, window: Window, found: ErasedKey) -> None:
        batches = [row.batch_id for row in self._rows(key, window)]
        for first in range(0, len(batches), _ROWS_AT_ONCE):
            step = batches[first : first + _ROWS_AT_ONCE]
            self._erase_between(key, Window(step[0], step[-1]), found)

    def _erase_between(self, key: str, window: Window, found: ErasedKey) -> None:
        with self._changing():
            self._connection.execute(_ERASURE["hold"])
            rows = self._rows(key, window)
            for row in rows:
                self._note(found, row)
            ready = [row for row in rows if row.is_ready]
            if not ready:
                return
            written = 0
            if self._writer is not None:
                written = self._writer.write(self._writer.wanted(key, ready))
                reach("erasure.after_tombstones")
            (erased,) = self._connection.execute(
                _ERASURE["erase_rows"], {"session_key": key, "batch_ids": [row.batch_id for row in ready]}
            ).fetchone() or (0,)
            if erased != len(ready):
                raise UnavailableError("the rows have changed meanwhile. Run the command again")
            sessions = sum(row.sessions for row in ready)
            self._record(rows=erased, sessions=sessions, tombstones=written)
            reach("erasure.before_commit")
        reach("erasure.after_commit")
        found.rows += erased
        found.sessions += sessions
        found.tombstones += written

    def _erase_letters(self, key: str, found: ErasedKey) -> None:
        of_key, self.letters_without_key = self._letters(key)
        erased = _LETTERS_AT_ONCE if of_key else 0
        while erased == _LETTERS_AT_ONCE:
            with self._changing():
                (erased,) = self._connection.execute(
                    _ERASURE["erase_letters"], {"session_key": key, "most": _LETTERS_AT_ONCE}
                ).fetchone() or (0,)
                if erased:
                    self._record(letters=erased)
            found.letters += erased

    def _erase_letter(self, position: RecordPosition, found: ErasedLetter) -> None:
        with self._changing():
            erased, still_open = self._connection.execute(
                _ERASURE["erase_letter_at"], position._asdict()
            ).fetchone() or (0, 0)
            if erased:
                self._record(letters=erased)
        found.letters += erased
        found.left = "it is open: `spark-job dead-letters discard ID` first" if still_open else None

    def _erase_traces(self, key: str, found: ErasedKey) -> list[str]:
        """Erase the key where it is stored outside of rows; return what still needs it, such as savepoints, and what to do.

        Only once nothing else is left: by its filter of keys, a replay that needs a row is known to need it.

        There may be many large positions, and the job writes no batch while the writer lock is held. So the existing positions are read
        without the lock, and only those added in the meantime are read under it.
        """
        if found.left:
            return []
        kept: set[str] = set()
        last = dict.fromkeys(("batch", "generation", "savepoint"), 0)
        for relation in last:
            more: int | None = 0
            while more is not None:
                last[relation] = more
                step = {"relation": relation, "after_id": more, "most": _POSITIONS_AT_ONCE}
                still, more = self._erase_some(_ERASURE["erase_positions"], {"session_key": key} | step)
                kept.update(still)
        still, *_ = self._erase_some(_ERASURE["erase_traces"], {"session_key": key} | last)
        return [_remembered_by(holder) for holder in sorted(kept.union(still))]

    def _erase_some(
        self, query: LiteralString, parameters: dict[str, Any], what: str = "cursors_and_positions"
    ) -> list[Any]:
        """Run a statement that returns the number of its changes first; return its other values. `what`: the log's name for the changes."""
        with self._changing():
            row = self._connection.execute(query, parameters).fetchone()
            changed, *others = row or (0, [], None)
            if changed:
                self._record(**{what: changed})
        return others

    def _record(self, **result: int) -> None:
        """Write to the operator log how many keys the command has; the keys themselves must not survive there."""
        topics = [] if self._writer is None else sorted(self._writer.topics)
        operations.record(
            self._connection, "publisher erase", {"keys": len(self.keys), "tombstones": topics}, result
        )

    def _letters(self, key: str) -> tuple[int, int]:
        """Return how many letters a key has, and how many have no key at all."""
        of_key, without_key = self._connection.execute(
            _ERASURE["letters"], {"session_key": key}
        ).fetchone() or (0, 0)
        return of_key, without_key

    def _rows(self, key: str, window: Window) -> list["_KeptRow"]:
        rows = self._connection.execute(
            _ERASURE["rows"], {"session_key": key} | window.bounds, binary=True, prepare=False
        )
        return [_KeptRow(*row) for row in rows]

    def _note(self, found: ErasedKey, row: "_KeptRow") -> None:
        if not row.is_delivered:
            found.left.append(
                f"the row of batch {row.batch_id} is not delivered yet, or its lane has not finished the batch: `publisher status`"
            )
        for replay_id in row.replays:
            found.left.append(
                f"replay {replay_id} needs the row of batch {row.batch_id}: if the replay runs, wait until it has passed the row, or pause "
                "it; if it is paused, continue or cancel it; if its process has died, wait until its lease has passed (docs/privacy.md)"
            )

    def _hash(self, key: str) -> str:
        row = self._connection.execute(_ERASURE["key_hash"], {"session_key": key}).fetchone()
        return "" if row is None else str(row[0])

    @contextmanager
    def _changing(self, *, force_rollback: bool = False) -> Iterator[None]:
        try:
            with self._connection.transaction(force_rollback=force_rollback):
                yield
        except psycopg.errors.LockNotAvailable as error:
            refuse_strangers(self._connection, "outbox.retention")
            raise UnavailableError(
                "an audit, a resume, retention or the job held a lock for longer than [postgres] lock_timeout_ms. What was erased stays "
                "erased; run the command again for the rest"
            ) from error


def _remembered_by(holder: str) -> str:
    kind, _, name = holder.partition(" ")
    if kind == "replay":
        return f"{holder} ended its last transaction at the key: continue the replay or cancel it"
    text = f"{holder} remembers the key, of a session over a limit, or of a partition's last record if an earlier version wrote it"
    return (
        f"{text}: `spark-job savepoint delete {name}`, if it is not needed" if kind == "savepoint" else text
    )


@dataclass(frozen=True, slots=True)
class _KeptRow:
    batch_id: int
    sessions: int
    topics: list[str]
    keys: list[bytes | None] | None
    partitions: list[int | None] | None
    is_delivered: bool
    replays: list[int]

    @property
    def is_ready(self) -> bool:
        return self.is_delivered and not self.replays
