"""A manifest lists the files of one archived partition. Others may be able to write to the archive, so it counts only with the digest that
Postgres has.
"""

from datetime import datetime
from hashlib import sha256
from typing import Annotated, Literal
from uuid import UUID

import orjson
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from publisher.archive.files import ArchiveDamagedError, manifest_name

MOST_BYTES = 4_000_000
"""Bytes of the largest manifest that is accepted. It lists at least one file for each day of the partition's batches."""

_Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
_Natural = Annotated[int, Field(ge=0)]


class Strict(BaseModel):
    """A document of the archive."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class Origin(Strict):
    """The database that wrote the archive.

    A copy of that database differs in at least one of these, unless it was started from a disk snapshot.
    """

    system_identifier: int
    database_oid: _Natural
    timeline: _Natural


class DataFile(Strict):
    """One Parquet file. `rows_sha256`: of the rows as Arrow has them, whatever their compression."""

    name: Annotated[
        str,
        StringConstraints(
            pattern=r"^day=[0-9]{4}-[0-9]{2}-[0-9]{2}/session_output_p[0-9]{8}-[0-9]{4}-[0-9a-f]{16}\.parquet$"
        ),
    ]
    bytes: _Natural
    sha256: _Digest
    rows_sha256: _Digest
    rows: _Natural
    sessions: _Natural
    outputs: _Natural
    output_bytes: _Natural
    first_batch: _Natural
    last_batch: _Natural
    committed_from: AwareDatetime
    committed_to: AwareDatetime


class Manifest(Strict):
    """The archive of one partition. Batches are inclusive; files in the order of their rows.

    `origin` is None in manifests from before it was recorded.
    """

    format: Literal[1] = 1
    outbox_uuid: UUID
    archive_id: UUID
    partition: Annotated[str, StringConstraints(pattern=r"^session_output_p[0-9]{8}$")]
    from_batch: _Natural
    to_batch: _Natural
    schema_revision: str
    archived_at: AwareDatetime
    origin: Origin | None = None
    files: tuple[DataFile, ...]

    def total(self, count: Literal["rows", "sessions", "outputs", "output_bytes"]) -> int:
        """Return a count over all files."""
        return sum(getattr(file, count) for file in self.files)

    def encode(self) -> bytes:
        """Return the text of the file."""
        # Leaves out fields that are None: older manifests lack them, and their digest must stay the same.
        return orjson.dumps(self.model_dump(exclude_none=True), option=orjson.OPT_INDENT_2 | orjson.OPT_UTC_Z)


def digest_of(text: bytes) -> bytes:
    """Return what Postgres keeps of a manifest."""
    return sha256(text).digest()


def decode(text: bytes) -> Manifest:
    """Read one. Raises ArchiveDamagedError where it is not of this format."""
    try:
        return Manifest.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        raise ArchiveDamagedError(
            f"the manifest cannot be read: {'.'.join(map(str, first['loc']))}: {first['msg']}"
        ) from error


def name_of(manifest: Manifest) -> str:
    """Return the name of its file."""
    return manifest_name(manifest.partition, digest_of(manifest.encode()).hex())


def day_of(moment: datetime) -> str:
    """Return the day in the folder's name. `moment` is in UTC, because Postgres is asked in UTC."""
    return moment.date().isoformat()
