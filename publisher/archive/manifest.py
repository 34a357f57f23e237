"""A manifest lists the files of one archived partition. Others may be able to write to the archive, so a manifest counts only if its digest
is the one in Postgres.
"""

from datetime import datetime
from hashlib import sha256
from typing import Annotated, Literal
from uuid import UUID

import orjson
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from publisher.archive.files import ArchiveDamagedError, manifest_name

MOST_BYTES = 4_000_000
"""The largest manifest that is accepted, in bytes. A manifest lists at least one file for each day with rows."""

_Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
_Natural = Annotated[int, Field(ge=0)]


class Strict(BaseModel):
    """The base of the archive's JSON documents: unknown fields and other types are refused."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class Origin(Strict):
    """The database that wrote the archive.

    A copy of that database differs in at least one field, unless it was started from a disk snapshot.
    """

    system_identifier: int
    database_oid: _Natural
    timeline: _Natural


class DataFile(Strict):
    """One Parquet file. `rows_sha256`: digest of the rows' values, independent of their compression."""

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
    """The archive of one partition. Batches are inclusive; files are in the order of their rows.

    `origin`: None in manifests of releases that did not record it.
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
        """Return the sum of a count over all files."""
        return sum(getattr(file, count) for file in self.files)

    def encode(self) -> bytes:
        """Return the manifest's text, as it is stored in the file."""
        # Leaves out fields that are None: older manifests lack them, and the digest of such a manifest must not change.
        return orjson.dumps(self.model_dump(exclude_none=True), option=orjson.OPT_INDENT_2 | orjson.OPT_UTC_Z)


def digest_of(text: bytes) -> bytes:
    """Return the digest of a manifest, which Postgres stores."""
    return sha256(text).digest()


def decode(text: bytes) -> Manifest:
    """Parse a manifest. Raises ArchiveDamagedError if the text is not of this format."""
    try:
        return Manifest.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        raise ArchiveDamagedError(
            f"the manifest cannot be read: {'.'.join(map(str, first['loc']))}: {first['msg']}"
        ) from error


def name_of(manifest: Manifest) -> str:
    """Return the name of a manifest's file."""
    return manifest_name(manifest.partition, digest_of(manifest.encode()).hex())


def day_of(moment: datetime) -> str:
    """Return the day that a data file's folder names. `moment` is in UTC, because Postgres is queried in UTC."""
    return moment.date().isoformat()
