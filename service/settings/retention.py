"""The settings of `publisher retention`."""

from pathlib import Path
from typing import Self

from pydantic import Field, model_validator

from service.settings.dsn import Dsn, dsn_from
from service.settings.section import Section


class RetentionSettings(Section):
    keep_s: int | None = Field(default=None, ge=60, le=3_153_600_000)
    """Seconds for which delivered outputs are kept, by the newest batch of their table partition. Empty: for ever."""
    keep_bytes: int | None = Field(default=None, ge=0)
    """Bytes that outputs and dead letters may take on disk, indexes included; the oldest table partitions go first. Empty: no bound."""
    keep_letters_s: int | None = Field(default=None, ge=60, le=3_153_600_000)
    """Seconds for which dead letters are kept after they were resolved or discarded. Empty: for ever."""
    keep_letters_bytes: int | None = Field(default=None, ge=0)
    """Bytes that the kept dead letters may take; the oldest resolved and discarded ones go first. Empty: no bound."""
    drop_open_letters: bool = False
    """Let `keep_letters_s` (counted from their batch) and `keep_letters_bytes` remove open ones, too, after the others. Needs a grant."""
    keep_ledger_s: int = Field(default=2_592_000, ge=60, le=3_153_600_000)
    """Seconds for which ledger rows, ended lane epochs, processes and replays are kept; for ever without `keep_s` and `keep_bytes`."""
    keep_operations_s: int = Field(default=31_536_000, ge=2_592_000, le=3_153_600_000)
    """Seconds for which the operator log is kept, at least 30 days."""
    ahead_batches: int = Field(default=20_000, ge=1, le=1_000_000)
    """Batches for which table partitions are made ahead."""
    lock_timeout_s: int = Field(default=60, ge=1, le=3_600)
    """Seconds to wait for transactions that still use a partition before it is left for the next run."""
    dsn: Dsn | None = None
    """A login with the role `outbox_retention`. A secret. Empty: `[postgres] dsn`."""
    dsn_file: Path | None = None
    """A file that holds this DSN; read for each connection. Wins over `dsn`."""

    @model_validator(mode="after")
    def _read_dsn(self) -> Self:
        if self.dsn_file is not None:
            object.__setattr__(self, "dsn", dsn_from(self.dsn_file, "dsn_file"))
        return self
