"""A savepoint as a file, from which another outbox can begin. It is small: offsets, what is open, and the assembly rules."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from uuid import UUID

import orjson

from service.errors import SettingsError
from spark_job.input.offsets import Offsets
from spark_job.ledger.lineage import Lineage
from spark_job.ledger.open_partitions import OpenPartitions
from spark_job.ledger.savepoints import Savepoint

_FORMAT = "spark-outbox savepoint 2"
_FORMER = "spark-outbox savepoint 1"
"""The same format, with digests of another form."""


@dataclass(frozen=True)
class ExportedSavepoint:
    """The content of the file."""

    outbox_uuid: UUID
    name: str
    created_at: str
    end: Offsets
    open: OpenPartitions
    lineage: Lineage
    assembly: Mapping[str, Any]
    topics: Mapping[str, str]
    """{topic id: topic}"""

    @classmethod
    def of(cls, savepoint: Savepoint, outbox_uuid: UUID) -> Self:
        """Return a savepoint of this outbox for export."""
        return cls(
            outbox_uuid,
            savepoint.name,
            savepoint.created_at.isoformat(),
            savepoint.end,
            savepoint.open,
            savepoint.lineage,
            savepoint.assembly,
            savepoint.topics,
        )

    def to_json(self) -> dict[str, Any]:
        """Return the file's content: the fields, and a checksum over them."""
        fields = {
            "format": _FORMAT,
            "outbox": str(self.outbox_uuid),
            "name": self.name,
            "created_at": self.created_at,
            "topics": dict(self.topics),
            "end_offsets": self.end.to_json(),
            "open_state": self.open.to_json(),
            "assembly": dict(self.assembly),
            "lineage": self.lineage.to_json(),
        }
        return fields | {"checksum": checksum_of(fields)}

    @classmethod
    def read(cls, file: Path) -> Self:
        """Read what `to_json` gave. Raises SettingsError for a file that is not a complete export."""
        try:
            fields = orjson.loads(file.read_bytes())
        except (OSError, orjson.JSONDecodeError) as error:
            raise SettingsError(f"{str(file)!r} cannot be read as an exported savepoint: {error}") from error
        if not isinstance(fields, dict) or fields.get("format") not in (_FORMAT, _FORMER):
            found = fields.get("format") if isinstance(fields, dict) else type(fields).__name__
            raise SettingsError(
                f"{str(file)!r} is no exported savepoint of this version: its format is {found!r}, not {_FORMAT!r}. "
                "`spark-job savepoint export NAME` writes one"
            )
        checksum = fields.pop("checksum", None)
        if checksum != checksum_of(fields):
            raise SettingsError(
                f"{str(file)!r} is not as it was written: its checksum is {checksum!r}, its content has {checksum_of(fields)!r}. Export "
                "it again"
            )
        try:
            return cls(
                UUID(fields["outbox"]),
                fields["name"],
                fields["created_at"],
                Offsets.from_json(fields["end_offsets"]),
                OpenPartitions.from_json(fields["open_state"]),
                Lineage.from_json(fields["lineage"]),
                fields["assembly"],
                fields["topics"],
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise SettingsError(f"{str(file)!r} lacks a part of a savepoint: {error!r}") from error


def checksum_of(fields: Mapping[str, Any]) -> str:
    return hashlib.sha256(orjson.dumps(dict(fields), option=orjson.OPT_SORT_KEYS)).hexdigest()
