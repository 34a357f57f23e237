"""Savepoints: named positions. A savepoint copies no open session: a restore reads them from Kafka again, from the safe offsets on.

`spark-job savepoint create` and `stop --savepoint` create them (commands/; job.py, if `stop` ends a job).
recovery/savepoint_restore.py decides whether a savepoint can be restored.
"""

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NoReturn, Self

from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from db import operations
from db.connection import Connection
from db.statements import queries
from service.errors import SettingsError
from spark_job.input.offsets import Offsets
from spark_job.ledger.open_partitions import OpenPartitions
from spark_job.ledger.position import InputPosition, read, read_before
from spark_job.ledger.rules_lineage import Lineage

_SAVEPOINTS = queries("spark_job", "savepoints")

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")  # as the CHECK savepoint_name_form


@dataclass(frozen=True)
class Savepoint:
    """A position to go back to: a batch, or the start of a generation that had committed none."""

    name: str
    generation: int
    batch_id: int | None
    end: Offsets
    open: OpenPartitions
    lineage: Lineage
    """Which rules applied to the sessions that are open there, `assembly` included."""
    assembly: Mapping[str, Any]
    topics: Mapping[str, str]
    """{topic id: topic} of the input"""
    revision: int
    created_at: datetime

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Self:
        """Read a row of `list` in sql/savepoints.sql.

        Lowers the savepoint's end to each later cut: from a cut on, offsets name other events now.
        """
        end, opened = Offsets.from_json(row["end_offsets"]), OpenPartitions.from_json(row["open_state"])
        for cut in map(Offsets.from_json, row["cuts"]):
            end, opened = end.lowered(cut), opened.cut(end, cut)
        return cls(
            name=row["name"],
            generation=row["generation"],
            batch_id=row["batch_id"],
            end=end,
            open=opened,
            lineage=Lineage.from_json(row["lineage"]),
            assembly=row["assembly"],
            topics=row["topics"],
            revision=row["revision"],
            created_at=row["created_at"],
        )

    @property
    def safe(self) -> Offsets:
        """The first offsets that Kafka must still have."""
        return self.open.safe(self.end)

    @property
    def place(self) -> str:
        """Its place in the ledger, for messages."""
        return f"generation {self.generation}, " + (
            f"batch {self.batch_id}" if self.batch_id else "its start"
        )

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON-ready values; offsets as `{topic id: {partition: offset}}`."""
        return {
            "name": self.name,
            "created_at": self.created_at.isoformat(),
            "generation": self.generation,
            "batch": self.batch_id,
            "revision": self.revision,
            "topics": dict(self.topics),
            "end_offsets": self.end.to_json(),
            "safe_offsets": self.safe.to_json(),
            "open_sessions": sum(each.sessions for each in self.open.values()),
        }


def create(connection: Connection, name: str, before: Offsets | None = None) -> Savepoint:
    """Name the current position. Call in a transaction that holds the writer lock, so that the position lies between two batches.

    `before`: instead, name the newest position that has read nothing at these offsets or above.

    Raises SettingsError if the name is not allowed or in use, if the outbox has no generation yet, or if there is no such position. It has
    then written nothing, and the transaction can continue.
    """
    check_name(name)
    at = read(connection)
    if at is not None and before is not None:
        at = read_before(connection, before) or _none_before(at, before)
    if at is None:
        raise SettingsError(
            "there is nothing to save yet: no job has ever started on this outbox. Run `spark-job run` first."
        )
    written = connection.execute(
        _SAVEPOINTS["insert"],
        {
            "name": name,
            "generation": at.generation.number,
            "batch_id": at.batch_id,
            "end_offsets": Jsonb(at.end.to_json()),
            "open_state": Jsonb(at.open.to_json()),
            "lineage": Jsonb(at.lineage.to_json()),
            "assembly": Jsonb(dict(at.generation.assembly)),
            "topics": Jsonb(dict(at.generation.topics)),
            "revision": at.generation.revision,
        },
    )
    if written.rowcount == 0:
        raise SettingsError(in_use(name))
    return get(connection, name)


def _none_before(at: InputPosition, before: Offsets) -> NoReturn:
    raise SettingsError(
        f"the ledger has no position before {', '.join(before.named(at.generation.topics))}: the outbox began later, or retention has "
        "removed the batches before ([retention] keep_s). Name a later time"
    )


def get(connection: Connection, name: str) -> Savepoint:
    """Return a savepoint. If none has the name, raises SettingsError that gives the nearest name."""
    known = {savepoint.name: savepoint for savepoint in all(connection)}
    if name not in known:
        near = difflib.get_close_matches(name, known, 1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise SettingsError(
            f"there is no savepoint {name!r}.{hint} `spark-job savepoint list` shows them all."
        )
    return known[name]


def all(connection: Connection) -> list[Savepoint]:
    """Return the savepoints that were not deleted, oldest first."""
    with connection.cursor(row_factory=dict_row) as cursor:
        return [Savepoint.from_row(row) for row in cursor.execute(_SAVEPOINTS["list"])]


def delete(connection: Connection, name: str) -> None:
    """Delete a savepoint, which frees its name. Raises SettingsError when there is none."""
    with connection.transaction():
        deleted = connection.execute(_SAVEPOINTS["delete"], {"name": name}).rowcount == 1
        if deleted:
            operations.record(connection, "spark-job savepoint delete", {"name": name})
    if not deleted:
        get(connection, name)  # raises with the nearest name
        raise SettingsError(
            f"savepoint {name!r} was deleted and created again just now. Delete it once more if it is in the way."
        )


def check_name(name: str) -> None:
    """Raise SettingsError when this cannot be a savepoint's name."""
    if not _NAME.fullmatch(name):
        raise SettingsError(
            f"{name!r} cannot be a savepoint's name: one letter or digit, then up to 99 letters, digits, '.', '_' or '-'."
        )


def in_use(name: str) -> str:
    """Return the message for a name in use, with the command that frees it."""
    return (
        f"there is a savepoint {name!r} already. Take another name, or free this one with `spark-job savepoint delete {name}`; "
        "`spark-job savepoint list` shows them all."
    )
