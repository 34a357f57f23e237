"""The two servers, and the faults that tests inject: settings of both services."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Self

from psycopg.conninfo import conninfo_to_dict
from pydantic import Field, PrivateAttr, SecretStr, field_validator, model_validator

from service.errors import SecretUnreadableError, SettingsError
from service.logins.options import require_protected, with_login
from service.settings.dsn import Dsn, address, dsn_from
from service.settings.java_client import java_options, with_certificates
from service.settings.section import (
    ClientOptions,
    EmptyIsNone,
    LoggedAddress,
    Milliseconds,
    OptionText,
    Section,
    secret_options,
)


class PostgresSettings(Section):
    dsn: Dsn = SecretStr("postgresql://localhost/outbox")
    """The outbox: a libpq URI, with user name and password percent-encoded (`@` is `%40`), or key=value pairs."""
    dsn_file: Path | None = None
    """A file with the DSN; wins over `dsn`."""
    login: Annotated[str | None, EmptyIsNone] = None
    """Who makes a password for each new connection: `aws-rds`, `azure`, `google-cloud-sql`, or a plugin (docs/managed-services.md).
    Empty: the DSN has it."""
    connect_timeout_s: int = Field(default=10, ge=1, le=600)
    """Seconds to wait for a connection."""
    lock_timeout_ms: Milliseconds = 30_000
    """Milliseconds to wait for a lock before the statement fails."""
    idle_in_transaction_timeout_ms: Milliseconds = 60_000
    """Milliseconds after which Postgres ends an idle transaction, so that a frozen process holds no lock for ever."""
    _named: str = PrivateAttr("[postgres] dsn (OUTBOX_POSTGRES__DSN)")

    @property
    def named(self) -> str:
        """The setting or the option that the DSN comes from, for messages."""
        return self._named

    def named_by(self, setting: str) -> "PostgresSettings":
        """Return these settings with another name for messages."""
        renamed = self.model_copy()
        renamed._named = setting
        return renamed

    @model_validator(mode="after")
    def _usable(self) -> Self:
        if self.dsn_file is not None:
            object.__setattr__(self, "dsn", dsn_from(self.dsn_file, "dsn_file"))
        return self

    def reread(self) -> "PostgresSettings":
        """Return these settings with the DSN that `dsn_file` holds now, for a new connection. Raises SecretUnreadableError."""
        if self.dsn_file is None:
            return self
        try:
            return self.model_copy(update={"dsn": dsn_from(self.dsn_file, "dsn_file")})
        except ValueError as error:
            raise SecretUnreadableError(f"[postgres] dsn_file {str(self.dsn_file)!r}: {error}") from None

    def logged_in_by(
        self, dsn: SecretStr | None, dsn_file: Path | None = None, section: str = "postgres"
    ) -> "PostgresSettings":
        """Return these settings with another section's DSN and its file, if that section has one."""
        if dsn is None:
            return self
        setting = f"[{section}] dsn (OUTBOX_{section.upper()}__DSN)"
        return self.model_copy(update={"dsn": dsn, "dsn_file": dsn_file}).named_by(setting)

    def address(self) -> str:
        """Return each host with its port, and the database, without user and password, for messages."""
        return address(self.dsn)

    def database(self) -> str:
        """Return the name of the database, empty if the DSN leaves it to libpq."""
        return str(conninfo_to_dict(self.dsn.get_secret_value()).get("dbname") or "")


class KafkaSettings(Section):
    bootstrap_servers: LoggedAddress = Field(default="localhost:9092", min_length=1)
    """Brokers to start from, `host:port,host:port`."""
    login: Annotated[str | None, EmptyIsNone] = None
    """Who gives both clients tokens: `aws-msk-iam`, `azure-entra`, `google`, or a plugin (docs/managed-services.md). Sets TLS and SASL.
    Empty: `options` set them."""
    options: ClientOptions = Field(default={}, repr=False)
    """librdkafka's options (`security.protocol`, `compression.type`, …)."""
    secret_options_file: Path | None = None
    """A TOML file with more options, for passwords; wins over `options`."""
    java_options: dict[OptionText, OptionText] = Field(default={}, repr=False)
    """More options of Spark's Kafka client, which also gets TLS and SASL of `options`; `java_options` win."""
    request_timeout_s: int = Field(default=30, ge=1, le=600)
    """Seconds to wait for one administrative request."""

    @field_validator("java_options")
    @classmethod
    def _in_lower_case(cls, options: dict[str, str]) -> dict[str, str]:
        # Spark ignores the case of names, so a name in another case would pass every check.
        return {name.lower(): value for name, value in options.items()}

    def client(self, **extra: str | int | float | bool) -> ClientOptions:
        """Return the configuration of a librdkafka client: these options, then `extra`.

        The code that makes a client passes it to `logged_in`.

        Raises SecretUnreadableError if the file of the secret options cannot be read, SettingsError if they contradict the login or name
        servers.
        """
        own = self.options | secret_options("kafka", self.secret_options_file)
        _require_no_servers(own, "[kafka.options], or the file of secret options,")
        if self.login is not None:
            own = with_login(self.login, own)
        return {"bootstrap.servers": self.bootstrap_servers} | own | extra

    def portable_client(self) -> ClientOptions:
        """Return `client()` for another machine: with the text of certificates and keys instead of their paths.

        Raises SecretUnreadableError if a file that they name cannot be read.
        """
        with _files_are_settings():
            return with_certificates(self.client())

    def java(self, login: Mapping[str, str] = MappingProxyType({})) -> dict[str, str]:
        """Return options of Kafka's Java client: those of TLS and SASL under its names, then `login`, then `java_options`; later ones win.

        Raises SecretUnreadableError if a file that they name cannot be read, SettingsError as `client`, also for `java_options`.
        """
        _require_no_servers(self.java_options, "[kafka.java_options]")
        if self.login is not None:
            require_protected(self.java_options, "[kafka.java_options]")
        with _files_are_settings():
            return java_options(self.client()) | dict(login) | self.java_options


def _require_no_servers(options: Iterable[str], where: str) -> None:
    """Raise SettingsError if options name servers: both clients must reach the same ones, which messages name."""
    if found := sorted({"bootstrap.servers", "metadata.broker.list"} & set(options)):
        raise SettingsError(
            f"{where} has {found[0]}: set [kafka] bootstrap_servers (OUTBOX_KAFKA__BOOTSTRAP_SERVERS) instead"
        )


@contextmanager
def _files_are_settings() -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        raise SecretUnreadableError(f"a file that [kafka.options] names cannot be read: {error}") from error


class InjectionSettings(Section):
    """`[testing]`, which docs/configuration.md leaves out: see service/lifecycle/fault_points.py."""

    fault_file: Path | None = None
    """The plan of the faults that a test injects."""
