"""The settings of `publisher retention`."""

import re
from pathlib import Path
from typing import Annotated, Self
from urllib.parse import unquote, urlsplit

from pydantic import Field, field_validator, model_validator

from service.settings.dsn import Dsn, dsn_from
from service.settings.section import EmptyIsNone, LoggedAddress, Section, require_address

# Characters that need no escape in any client's URL.
_BUCKET = re.compile(r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/(?!\.\.?(/|$))[A-Za-z0-9._=-]+)*/?", re.ASCII)
_ENDPOINT = re.compile(r"https?://([A-Za-z0-9.-]+|\[[0-9A-Fa-f:]+\])(:[0-9]{1,5})?/?", re.ASCII)


class RetentionSettings(Section):
    keep_s: int | None = Field(default=None, ge=60, le=3_153_600_000)
    """Seconds to keep delivered outputs, by the newest batch of their table partition. Empty: for ever."""
    keep_bytes: int | None = Field(default=None, ge=0)
    """Most bytes of outputs and dead letters on disk, with indexes; the oldest partitions go first. Empty: no bound."""
    keep_letters_s: int | None = Field(default=None, ge=60, le=3_153_600_000)
    """Seconds to keep dead letters after they were resolved or discarded. Empty: for ever."""
    keep_letters_bytes: int | None = Field(default=None, ge=0)
    """Most bytes of dead letters; the oldest closed ones go first. Empty: no bound."""
    drop_open_letters: bool = False
    """Let both limits remove open letters, too, after the others, by the age of their batch. Needs a grant."""
    keep_ledger_s: int = Field(default=2_592_000, ge=60, le=3_153_600_000)
    """Seconds to keep ledger rows, ended lane epochs, processes and replays; for ever without `keep_s` and `keep_bytes`."""
    keep_operations_s: int = Field(default=31_536_000, ge=2_592_000, le=3_153_600_000)
    """Seconds to keep the operator log, at least 30 days."""
    archive: str | None = None
    """Where partitions are archived as Parquet before they are dropped: `file:///FOLDER` or `s3://BUCKET/PREFIX`, which must
    exist. Empty: nowhere."""
    archive_region: Annotated[str | None, EmptyIsNone] = Field(default=None, pattern=r"^[a-z0-9-]+$")
    """The bucket's region. Empty: as the AWS SDK finds it (`AWS_REGION`, the profile)."""
    archive_endpoint: Annotated[LoggedAddress | None, EmptyIsNone] = None
    """Another server with S3's protocol, `https://HOST:PORT`. Empty: AWS."""
    ahead_batches: int = Field(default=20_000, ge=1, le=1_000_000)
    """Batches for which table partitions are made ahead."""
    lock_timeout_s: int = Field(default=60, ge=1, le=3_600)
    """Seconds to wait for transactions that use a partition; then the next run tries again."""
    dsn: Annotated[Dsn | None, EmptyIsNone] = None
    """A login with the role `outbox_retention`. Empty: `[postgres] dsn`."""
    dsn_file: Path | None = None
    """A file with the DSN; wins over `dsn`."""

    @field_validator("archive")
    @classmethod
    def _archive_is_a_location(cls, value: str | None) -> str | None:
        if not value:
            return None
        if value.startswith("s3:"):
            # Without the text, which has secrets if a key was put into the URL.
            if not _BUCKET.fullmatch(value):
                raise ValueError(
                    "it is not s3://BUCKET or s3://BUCKET/PREFIX, of letters, digits and . - _ = (its text is not shown: it may be secret)"
                )
            return value.rstrip("/")
        found = urlsplit(value)
        path = unquote(found.path)
        if (
            found.scheme != "file"
            or found.netloc
            or found.query
            or found.fragment
            or not path.startswith("/")
        ):
            # As above: s3a://KEY:SECRET@BUCKET is what other programs take.
            shown = repr(value) if value.startswith(("file:", "/")) else "it"
            raise ValueError(f"{shown} is neither file:///FOLDER, with three slashes, nor s3://BUCKET/PREFIX")
        if "\0" in path or ".." in path.split("/"):
            raise ValueError(f"{value!r} has .. or a NUL in it: name the folder itself")
        return value

    @field_validator("archive_endpoint")
    @classmethod
    def _endpoint_is_a_server(cls, value: str | None) -> str | None:
        if value is not None and not _ENDPOINT.fullmatch(value):
            raise ValueError(f"{value!r} is not http://HOST:PORT or https://HOST:PORT")
        if value is not None:
            require_address(value)
        return None if value is None else value.rstrip("/")

    @model_validator(mode="after")
    def _only_a_bucket_is_on_a_server(self) -> Self:
        for name in ("archive_region", "archive_endpoint"):
            if getattr(self, name) is not None and not (self.archive or "").startswith("s3:"):
                raise ValueError(
                    f'{name} is for an archive in S3: set archive = "s3://BUCKET/PREFIX", or remove it'
                )
        return self

    @model_validator(mode="after")
    def _read_dsn(self) -> Self:
        if self.dsn_file is not None:
            object.__setattr__(self, "dsn", dsn_from(self.dsn_file, "dsn_file"))
        return self
