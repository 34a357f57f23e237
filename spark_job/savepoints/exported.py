"""A savepoint as a file, from which another outbox can begin. It has offsets, assembly rules and counts, but no events."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Self
from uuid import UUID

import orjson
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from service.errors import SettingsError
from spark_job.assembly.refused_ids import MOST_RANGES
from spark_job.input.offsets import Offsets
from spark_job.ledger.assembly_rules import applied_rules
from spark_job.ledger.open_partitions import OpenPartitions
from spark_job.ledger.rules_lineage import Lineage
from spark_job.ledger.savepoints import Savepoint
from spark_job.sessions.errors import DamagedStateError
from spark_job.sessions.settings import Format
from spark_job.sessions.state.open_state import OpenState

_FORMAT = "spark-outbox savepoint 3"
_FORMER = ("spark-outbox savepoint 1", "spark-outbox savepoint 2")
"""Former versions of the format, with other forms of digests."""
MOST_BYTES = 1 << 30
"""Postgres keeps no larger value."""
_SHOWN = 200


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
        """Read a file with the content of `to_json`. Raises SettingsError for a file that is not a complete export.

        Each value is checked: the writer of a forged file can forge its checksum, too.
        """
        try:
            with open(file, "rb") as opened:
                content = opened.read(MOST_BYTES + 1)
            fields = orjson.loads(content) if len(content) <= MOST_BYTES else None
        except (OSError, orjson.JSONDecodeError) as error:
            raise SettingsError(f"{str(file)!r} cannot be read as an exported savepoint: {error}") from error
        if not isinstance(fields, dict) or fields.get("format") not in (_FORMAT, *_FORMER):
            found = fields.get("format") if isinstance(fields, dict) else type(fields).__name__
            raise SettingsError(
                f"{str(file)!r} is no exported savepoint of this version: its format is {_cut(found)}, not {_FORMAT!r}. "
                "`spark-job savepoint export NAME` writes one"
            )
        checksum = fields.pop("checksum", None)
        try:
            if checksum != (computed := checksum_of(fields)):
                raise SettingsError(
                    f"{str(file)!r} is not as it was written: its checksum is {_cut(checksum)}, its content has {computed!r}. Export "
                    "it again"
                )
            _Document.model_validate(fields)
            opened_at = OpenPartitions.from_json(fields["open_state"])
            lineage = Lineage.from_json(fields["lineage"])
            for assembly in (fields["assembly"], *(each.assembly for each in lineage.former)):
                applied_rules(assembly)
            for each in opened_at.values():
                OpenState.awaiting(each.tombstones)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            place = ".".join(map(str, first["loc"]))
            raise _malformed(file, f"{place[:_SHOWN]} is {_cut(first['input'])}: {first['msg']}") from error
        except (ValueError, TypeError, DamagedStateError) as error:
            raise _malformed(file, str(error)[:_SHOWN]) from error
        return cls(
            UUID(fields["outbox"]),
            fields["name"],
            fields["created_at"],
            Offsets.from_json(fields["end_offsets"]),
            opened_at,
            lineage,
            fields["assembly"],
            fields["topics"],
        )


_Partition = Annotated[str, StringConstraints(pattern=r"^(0|[1-9][0-9]{0,8})$")]
_Natural = Annotated[int, Field(ge=0, le=2**63 - 1)]
_Name = Annotated[str, StringConstraints(min_length=1, max_length=1_000)]
_Offsets = dict[_Name, dict[_Partition, _Natural]]


class _Part(BaseModel):
    model_config = ConfigDict(strict=True)


class _Rules(_Part):
    """The fields beside the settings of `[session]`; `applied_rules` checks those settings."""

    rules: _Natural = 1
    format: Format = "json"
    schema_id: str = "payload"
    max_open_bytes: _Natural | None = None


class _Open(_Part):
    safe: _Natural
    sessions: _Natural
    events: _Natural
    bytes: _Natural
    digest: str | None = None
    upgraded: bool = False
    refused: Annotated[
        list[Annotated[list[_Natural], Field(min_length=4, max_length=4)]], Field(max_length=MOST_RANGES)
    ] = []
    tombstones: str = ""


class _Former(_Part):
    assembly: _Rules
    start: _Offsets


class _Document(_Part):
    """The types of the values. The code that reads a value checks its content."""

    outbox: Annotated[str, AfterValidator(UUID)]
    name: _Name
    created_at: Annotated[str, AfterValidator(datetime.fromisoformat)]
    topics: dict[_Name, _Name]
    end_offsets: _Offsets
    open_state: dict[_Name, dict[_Partition, _Open]]
    assembly: _Rules
    lineage: list[_Former]


def _malformed(file: Path, reason: str) -> SettingsError:
    return SettingsError(
        f"{str(file)!r} has a checksum, and is no savepoint that this version writes: {reason}. Export it again: "
        "`spark-job savepoint export NAME`"
    )


def _cut(value: object) -> str:
    return repr(value)[:_SHOWN]


def checksum_of(fields: Mapping[str, Any]) -> str:
    return hashlib.sha256(orjson.dumps(dict(fields), option=orjson.OPT_SORT_KEYS)).hexdigest()
