"""Collects the rows with lost outputs, and builds the command that sends them again. The rows are kept in a file, because their number is
unbounded."""

import shlex
import sqlite3
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from tempfile import mkdtemp
from types import TracebackType
from typing import Any, Self

import psycopg

from db import windows
from db.statements import queries
from publisher.audit.readback.digest import ExpectedOutput
from service.commands.session_keys import file_text, is_line
from service.errors import SettingsError
from service.private_file import private, write_private

_ROWS = queries("publisher.audit", "rows")

_KEYS_IN_COMMAND = 10


class LostRows:
    """Rows with lost outputs, identified by (batch, lane, number of the row), in a separate database file."""

    def __init__(self, folder: Path) -> None:
        path = folder / "lost.sqlite"
        path.unlink(missing_ok=True)
        self._path = path
        # SQLite would take the file's mode from the umask. SQLite gives its journal the mode of the database file.
        with open(path, "xb", opener=private):
            pass
        self._database = sqlite3.connect(path)
        self._database.execute(
            "CREATE TABLE lost (batch INTEGER, lane INTEGER, row INTEGER, PRIMARY KEY (batch, lane, row)) WITHOUT ROWID"
        )
        self.topics: set[int] = set()

    def add(self, outputs: Iterable[ExpectedOutput]) -> None:
        """Remember the rows of these outputs."""
        rows = set()
        for output in outputs:
            rows.add((output.batch_id, output.lane, output.row))
            self.topics.add(output.topic)
        with self._database:
            self._database.executemany("INSERT OR IGNORE INTO lost VALUES (?, ?, ?)", rows)

    def count(self) -> int:
        """Return the number of rows."""
        return int(self._database.execute("SELECT count(*) FROM lost").fetchone()[0])

    def batches(self) -> tuple[int, int]:
        """Return the first and the last batch with a lost output."""
        first, last = self._database.execute("SELECT min(batch), max(batch) FROM lost").fetchone()
        return first, last

    def keys(self, connection: psycopg.Connection[Any]) -> Iterator[str]:
        """Yield each row's session key, in the order of the batches. A key may come several times."""
        rows = self._database.execute("SELECT batch, lane, row FROM lost ORDER BY batch, lane, row")
        for (batch_id, lane), numbers in groupby(rows, key=lambda row: (row[0], row[1])):
            keys = row_keys(connection, batch_id, lane)
            for _, _, number in numbers:
                if number < len(keys):
                    yield keys[number]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._database.close()
        self._path.unlink(missing_ok=True)


def row_keys(connection: psycopg.Connection[Any], batch_id: int, lane: int) -> list[str]:
    """Return the session keys of a lane's rows of a batch, in the order in which `ExpectedOutput.row` counts them."""
    rows = connection.execute(_ROWS["keys"], {"batch_id": batch_id, "lane": lane}, prepare=False)
    return [key for (key,) in rows]


def mending_command(
    connection: psycopg.Connection[Any], lost: LostRows, topics: list[str], keys_file: Path
) -> str | None:
    """Return the `publisher replay start` that sends the lost outputs once more, None if nothing is lost.

    Many keys are written to `keys_file`, one per line, except keys that do not fit on a line. If every row of the batches is lost, the
    command names no keys.
    """
    count = lost.count()
    if count == 0:
        return None
    first, last = lost.batches()
    command = ["publisher", "replay", "start", "--from-batch", str(first), "--to-batch", str(last)]
    if _kept_rows(connection, first, last) != count:
        keys = sorted(set(lost.keys(connection)))
        named = keys if len(keys) <= _KEYS_IN_COMMAND else [key for key in keys if not is_line(key)]
        # Option and key are one word, because a key may begin with a dash.
        command += [f"--key={key}" for key in named]
        if len(named) < len(keys):
            text = file_text((key for key in keys if key not in set(named)), keys_file)
            command += ["--keys-file", str(_written(keys_file, text))]
    if len(lost.topics) < len(topics):
        for topic in sorted(lost.topics):
            command += ["--topic", topics[topic]]
    return " ".join(map(shell_word, [*command, "--yes"]))


def _written(keys_file: Path, text: str) -> Path:
    """Write the keys to the file, or to a temporary one if that fails: the audit may have run for hours. Raises SettingsError, OSError."""
    try:
        write_private(keys_file, text, "--keys-file")
    except SettingsError:
        keys_file = Path(mkdtemp(prefix="outbox-lost-keys-"), keys_file.name)
        write_private(keys_file, text, "--keys-file")
    return keys_file


def _kept_rows(connection: psycopg.Connection[Any], first: int, last: int) -> int:
    """Return how many rows of these batches are not parked."""
    total = 0
    for window in windows.cut(first, last):
        row = connection.execute(_ROWS["count"], window.bounds, prepare=False).fetchone()
        total += 0 if row is None else row[0]
    return total


def shell_word(text: str) -> str:
    """Quote a word for bash. Unprintable characters are escaped: a terminal would interpret them, and a paste would lose them."""
    if text.isprintable():
        return shlex.quote(text)
    escaped = "".join(
        "".join(f"\\x{byte:02x}" for byte in character.encode())
        if not character.isprintable()
        else f"\\{character}"
        if character in "\\'"
        else character
        for character in text
    )
    return f"$'{escaped}'"
