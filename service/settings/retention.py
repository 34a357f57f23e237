"""The settings of `publisher retention`."""

from pathlib import Path
from typing import Self
from urllib.parse import unquote, urlsplit

from pydantic import Field, field_validator, model_validator

from service.settings.dsn import Dsn, dsn_from
from service.settings.section import Section


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
    """Where partitions are archived as Parquet before they are dropped: `file:///FOLDER`, which must be there. Empty: nowhere."""
    ahead_batches: int = Field(default=20_000, ge=1, le=1_000_000)
    """Batches for which table partitions are made ahead."""
    lock_timeout_s: int = Field(default=60, ge=1, le=3_600)
    """Seconds to wait for transactions that use a partition; then the next run tries again."""
    dsn: Dsn | None = None
    """A login with the role `outbox_retention`. Empty: `[postgres] dsn`."""
    dsn_file: Path | None = None
    """A file with the DSN; wins over `dsn`."""

    @field_validator("archive")
    @classmethod
    def _archive_is_a_folder(cls, value: str | None) -> str | None:
        if not value:
            return None
        found = urlsplit(value)
        path = unquote(found.path)
        if (
            found.scheme != "file"
            or found.netloc
            or found.query
            or found.fragment
            or not path.startswith("/")
        ):
            raise ValueError(f"{value!r} is not file:///FOLDER, with three slashes")
        if "\0" in path or ".." in path.split("/"):
            raise ValueError(f"{value!r} has .. in it: name the folder itself")
        return value

    @model_validator(mode="after")
    def _read_dsn(self) -> Self:
        if self.dsn_file is not None:
            object.__setattr__(self, "dsn", dsn_from(self.dsn_file, "dsn_file"))
        return self
