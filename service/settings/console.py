"""The settings of the console: the read-only pages that `publisher run` and `publisher console` serve."""

import hmac
import ipaddress
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, SecretStr, model_validator

from service.settings.dsn import Dsn, dsn_from, read_secret
from service.settings.section import EmptyIsNone, Section

_LEAST_TOKEN = 16


class ConsoleSettings(Section):
    port: int = Field(default=0, ge=0, le=65_535)
    """TCP port on which `publisher run` serves the console (docs/console.md); 0: none."""
    host: str = Field(default="127.0.0.1", min_length=1)
    """Address to listen on. Any but loopback needs `token` or `behind_proxy`."""
    token: Annotated[SecretStr | None, EmptyIsNone] = None
    """Token to log in with, at least 16 characters; scripts send it as `Authorization: Bearer`. Empty: no login."""
    token_file: Path | None = None
    """A file with the token, read again for each request; wins over `token`."""
    behind_proxy: bool = False
    """A reverse proxy in front decides who may see the console."""
    public_host: str = Field(default="", pattern=r"^([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])?$")
    """Name in the `Host` that the proxy passes on; all other names but local ones need a token."""
    path_prefix: str = Field(default="", pattern=r"^(/[A-Za-z0-9._~-]+)*$")
    """Path that the proxy strips, for instance `/outbox`."""
    dsn: Annotated[Dsn | None, EmptyIsNone] = None
    """A login with the role `outbox_auditor`. Empty: `[postgres] dsn`."""
    dsn_file: Path | None = None
    """A file with the DSN; wins over `dsn`."""
    consumer_dsn_file: Path | None = None
    """A file with the DSN of a consumer's Postgres, with SELECT on `outbox_consumer_*` (docs/consumers.md), for the page of a session."""
    show_values: bool = False
    """Show keys, headers and values of events, and error messages that quote them. Off: sizes, and the names of headers."""
    refresh_s: float = Field(default=1.0, ge=0.2, le=60)
    """Seconds between two queries of an open live page."""
    statement_timeout_ms: int = Field(default=5_000, ge=100, le=60_000)
    """Milliseconds after which Postgres ends a query."""

    @model_validator(mode="after")
    def _usable(self) -> Self:
        if self.token_file is not None:
            object.__setattr__(self, "token", SecretStr(read_secret(self.token_file, "token_file")))
        if self.dsn_file is not None:
            object.__setattr__(self, "dsn", dsn_from(self.dsn_file, "dsn_file"))
        if self.consumer_dsn_file is not None:
            dsn_from(self.consumer_dsn_file, "consumer_dsn_file")
        if self.token is not None and len(self.token.get_secret_value()) < _LEAST_TOKEN:
            raise ValueError(f"the token has fewer than {_LEAST_TOKEN} characters (its text is not shown)")
        if not (self.is_local or self.token is not None or self.behind_proxy):
            raise ValueError(
                f"host {self.host!r} is not of this host alone: set a token, or behind_proxy = true where a reverse proxy lets in only who "
                "may see it"
            )
        return self

    @property
    def is_local(self) -> bool:
        """Whether only programs of this host can reach the console."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    def token_now(self) -> str:
        """Return the token, as its file has it now; empty, which admits nobody, if there is no valid token."""
        if self.token_file is None:
            return "" if self.token is None else self.token.get_secret_value()
        try:
            found = read_secret(self.token_file, "token_file")
        except ValueError:
            return ""
        return found if len(found) >= _LEAST_TOKEN else ""

    def is_token(self, given: str) -> bool:
        """Return whether this is the token, in a time that depends only on its length."""
        token = self.token_now()
        return bool(token) and hmac.compare_digest(token.encode(), given.encode("utf-8", "replace"))
