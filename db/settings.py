"""The settings of both services: one TOML file, every key also an environment variable `OUTBOX_<SECTION>__<KEY>`.

Validated once at the start; unknown keys are refused with the nearest known one. docs/configuration.md lists every key.
"""

import difflib
import os
import re
import tomllib
from pathlib import Path
from typing import Annotated, Literal, Self

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from db.errors import SettingsError

_FIELD_PATH = re.compile(r"\$(\.[A-Za-z_][A-Za-z0-9_-]*)+")
_HEADER = re.compile(r"header:.+")
_TEST_DATABASE = "test_"

Milliseconds = Annotated[int, Field(ge=1, le=86_400_000)]


class Section(BaseModel):
    """A table of the TOML file."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class PostgresSettings(Section):
    dsn: SecretStr = SecretStr("postgresql://localhost/outbox")
    """Where the outbox is: a libpq URI or key=value string. A secret; never printed."""
    dsn_file: Path | None = None
    """A file that holds the DSN, for secrets mounted as files. Wins over `dsn`."""
    connect_timeout_s: int = Field(default=10, ge=1, le=600)
    """Seconds to wait for a connection."""
    lock_timeout_ms: Milliseconds = 30_000
    """Milliseconds to wait for a lock before the statement fails."""
    idle_in_transaction_timeout_ms: Milliseconds = 60_000
    """Milliseconds after which Postgres ends a transaction that nobody works on, so that a stopped process holds no lock for ever."""

    @model_validator(mode="after")
    def _usable(self) -> Self:
        if self.dsn_file is not None:
            try:
                text = self.dsn_file.read_text("utf-8").strip()
            except (OSError, UnicodeDecodeError) as error:
                raise ValueError(f"dsn_file {str(self.dsn_file)!r} cannot be read: {error}") from None
            object.__setattr__(self, "dsn", SecretStr(text))
        try:
            conninfo_to_dict(self.dsn.get_secret_value())
        except ProgrammingError:
            # libpq's message quotes the text, and the text may hold a password.
            raise ValueError(
                "the DSN is neither a libpq URI nor key=value pairs (its text is not shown: it may be secret)"
            ) from None
        return self

    def address(self) -> str:
        """Return each host with its port, and the database, without user and password, for messages."""
        parts = conninfo_to_dict(self.dsn.get_secret_value())
        hosts = str(parts.get("host") or parts.get("hostaddr") or "the local socket").split(",")
        ports = [port or "5432" for port in str(parts.get("port") or "").split(",")]
        # libpq: one port is every host's.
        places = zip(hosts, ports if len(ports) == len(hosts) else ports[:1] * len(hosts), strict=True)
        return f"{','.join(f'{host}:{port}' for host, port in places)}/{parts.get('dbname') or ''}"

    def database(self) -> str:
        """Return the name of the database, empty where the DSN leaves it to libpq."""
        return str(conninfo_to_dict(self.dsn.get_secret_value()).get("dbname") or "")


class KafkaSettings(Section):
    bootstrap_servers: str = Field(default="localhost:9092", min_length=1)
    """Brokers to start from, `host:port,host:port`."""
    options: dict[str, str | int | float | bool] = {}
    """Every librdkafka option, as it is named there (`security.protocol`, `sasl.username`, `compression.type`, …)."""
    secret_options_file: Path | None = None
    """A TOML file with more of the same, for passwords. Wins over `options`."""
    java_options: dict[str, str] = {}
    """Options of Kafka's Java client, by which Spark reads: `security.protocol`, `sasl.jaas.config`, … Spark adds `kafka.` itself."""
    request_timeout_s: int = Field(default=30, ge=1, le=600)
    """Seconds to wait for an answer to one administrative request."""

    def client(self, **extra: str | int | float | bool) -> dict[str, str | int | float | bool]:
        """Return the configuration of a librdkafka client: these options, then `extra`."""
        secret = (
            tomllib.loads(self.secret_options_file.read_text("utf-8")) if self.secret_options_file else {}
        )
        return {"bootstrap.servers": self.bootstrap_servers} | self.options | secret | extra


class SourceSettings(Section):
    topics: tuple[str, ...] = Field(default=("session-events",), min_length=1)
    """Topics that hold the session events. The order is part of the assembly: append, do not reorder."""
    starting_offsets: Literal["earliest", "latest"] = "earliest"
    """Where the first generation starts. Later ones start where the ledger says."""
    consumer_group: str = "outbox-spark-job"
    """Group to which the job commits its offsets for lag tools. Recovery never reads it. Empty: none."""


class SessionSettings(Section):
    key: str = "$.session_key"
    """Session key: a JSON field (`$.name`, `$.a.b`), the record's key (`key`), or a header (`header:NAME`)."""
    type: str = "$.event_type"
    """Event type: a JSON field or a header."""
    start: str = Field(default="start_event", min_length=1)
    """Event type that opens a session."""
    entry: str = Field(default="entry_event", min_length=1)
    """Event type within a session."""
    end: str = Field(default="end_event", min_length=1)
    """Event type that closes a session."""
    event_id: str | None = None
    """JSON field or header by which duplicates within a session are dropped; none: only repeated starts are."""
    time: str = "timestamp"
    """Event time: the record's `timestamp`, or a JSON field."""
    time_format: Literal["iso8601", "epoch_ms"] = "iso8601"
    """How a JSON time field is written."""
    timeout_s: float = Field(default=60, gt=0, le=86_400)
    """An event later than its session's greatest timestamp by more than this ends the session as timed out."""
    grace_s: float = Field(default=20, ge=0, le=86_400)
    """Silence is judged by other keys' events only after the timeout and this many seconds more."""
    max_events: int = Field(default=10_000, ge=2, le=10_000_000)
    """Events a session may have; beyond, it is dead-lettered as too large."""
    max_bytes: int = Field(default=16_777_216, ge=1_024, le=268_435_456)
    """Bytes of event values a session may have."""
    max_bucket_bytes: int = Field(default=268_435_456, ge=65_536, le=1_900_000_000)
    """Bytes of open events one bucket may hold; beyond, the job stops with an explanation before memory runs out."""

    @field_validator("key")
    @classmethod
    def _key_source(cls, value: str) -> str:
        if value != "key" and not _FIELD_PATH.fullmatch(value) and not _HEADER.fullmatch(value):
            raise ValueError(f"{value!r} is not `key`, `$.field` or `header:NAME`")
        return value

    @field_validator("type", "event_id")
    @classmethod
    def _field_or_header(cls, value: str | None) -> str | None:
        if value is not None and not _FIELD_PATH.fullmatch(value) and not _HEADER.fullmatch(value):
            raise ValueError(f"{value!r} is not `$.field` or `header:NAME`")
        return value

    @field_validator("time")
    @classmethod
    def _time_source(cls, value: str) -> str:
        if value != "timestamp" and not _FIELD_PATH.fullmatch(value):
            raise ValueError(f"{value!r} is not `timestamp` or `$.field`")
        return value

    @model_validator(mode="after")
    def _types_differ(self) -> Self:
        if len({self.start, self.entry, self.end}) < 3:
            raise ValueError(
                f"start, entry and end must differ: {self.start!r}, {self.entry!r}, {self.end!r}"
            )
        return self


class TransformSettings(Section):
    function: str = Field(default="examples.clickstream.transform:transform", pattern=r"^[\w.]+:\w+$")
    """The transform, `module:function`, importable by the job and its executors."""
    on_error: Literal["dead_letter", "stop"] = "dead_letter"
    """What a transform that raises does: its session becomes a dead letter, or the job stops."""


class JobSettings(Section):
    checkpoint: str = "./checkpoint"
    """Folder (any URI that Spark's Hadoop file systems know) that holds one directory for each generation."""
    trigger_ms: int = Field(default=200, ge=0, le=3_600_000)
    """Milliseconds between the starts of two batches; 0: as soon as possible."""
    buckets: int = Field(default=8, ge=1, le=4096)
    """Groups of keys with common state, a multiple of `shuffle_partitions`. Of the first generation; later `spark-job rescale`."""
    shuffle_partitions: int = Field(default=2, ge=1, le=1024)
    """Tasks that assemble at once, best the cores. Of the first generation; later `spark-job rescale`."""
    max_events_per_batch: int = Field(default=500_000, ge=1, le=100_000_000)
    """Input events of one batch at the most, so that the first one after an outage fits in memory."""
    max_row_bytes: int = Field(default=67_108_864, ge=1_024, le=536_870_912)
    """Bytes of output values of one session, and of one outbox row; a key's sessions of a batch that need more take several rows."""
    master: str = "local[*]"
    """Spark master, where `spark-job` starts Spark itself."""
    driver_memory: str = Field(default="4g", pattern=r"^\d+[mg]$")
    """Heap of the driver (in local mode: of everything)."""
    spark_options: dict[str, str] = {}
    """Further Spark configuration, as Spark names it."""
    heartbeat_s: float = Field(default=2.0, ge=0.2, le=60)
    """Seconds between two heartbeats of the writer, and between two looks for requests of `spark-job` commands."""
    owner_timeout_s: float = Field(default=30.0, ge=1, le=3_600)
    """Seconds after which a writer whose connection is still open, but whose heartbeat is not, counts as dead."""

    max_backlog_events: int = Field(default=0, ge=0)
    """Undelivered output events at which the job takes no further batch until the publisher has caught up; 0: no bound."""
    max_backlog_bytes: int = Field(default=0, ge=0)
    """The same by bytes of undelivered outputs as the outbox encodes them; 0: no bound."""

    @model_validator(mode="after")
    def _heart_beats_in_time(self) -> Self:
        if self.owner_timeout_s < 3 * self.heartbeat_s:
            raise ValueError(
                f"owner_timeout_s ({self.owner_timeout_s}) must be at least three times heartbeat_s ({self.heartbeat_s}), or a healthy "
                "owner counts as dead"
            )
        return self


class RestartSettings(Section):
    strategy: Literal["exponential", "fixed_delay", "failure_rate", "none"] = "exponential"
    """What the job does after a failure that may pass by itself: start again inside the process, by this rule; `none`: end the process."""
    attempts: int = Field(default=0, ge=0)
    """`fixed_delay` and `exponential`: restarts in succession before the job gives up; 0: no bound."""
    delay_s: float = Field(default=1.0, ge=0, le=3_600)
    """Seconds before a restart; of `exponential` the first one's."""
    max_delay_s: float = Field(default=60.0, ge=0, le=86_400)
    """`exponential`: longest delay."""
    multiplier: float = Field(default=2.0, ge=1, le=100)
    """`exponential`: each delay is this many times the one before."""
    jitter: float = Field(default=0.1, ge=0, le=1)
    """`exponential`: part of the delay that is random, so that many jobs do not come back at once."""
    reset_after_s: float = Field(default=300.0, ge=0, le=86_400)
    """`fixed_delay` and `exponential`: seconds without a failure after which the count of restarts and the delay begin anew."""
    failures: int = Field(default=5, ge=1, le=10_000)
    """`failure_rate`: failures within `window_s` at which the job gives up."""
    window_s: float = Field(default=600.0, gt=0, le=604_800)
    """`failure_rate`: length of the window in seconds."""

    @model_validator(mode="after")
    def _delay_grows(self) -> Self:
        if self.strategy == "exponential" and self.max_delay_s < self.delay_s:
            raise ValueError(f"max_delay_s ({self.max_delay_s}) must not be below delay_s ({self.delay_s})")
        return self


class PublisherSettings(Section):
    lanes: int = Field(default=8, ge=1, le=1024)
    """Lanes of the first epoch. Read when the outbox is used for the first time only; a command to change them later is still to come."""
    transactional_id_prefix: str = Field(default="outbox", min_length=1, max_length=100)
    """Start of each lane's transactional id; on a cluster with ACLs, what to allow."""
    progress_topic: str = Field(default="outbox-progress", pattern=r"^[A-Za-z0-9._-]{1,200}$")
    """Name of the compacted progress topic; the outbox uuid is appended."""
    progress_replication: int = Field(default=-1, ge=-1, le=32_767)
    """Replication factor of the progress topic; -1: the broker's default."""
    create_topics: bool = False
    """Create missing output topics with the broker's defaults."""
    transaction_sessions: int = Field(default=1_000, ge=1, le=100_000)
    """Rows (sessions of a key) a Kafka transaction carries at the most."""
    transaction_bytes: int = Field(default=16_777_216, ge=1_024, le=1_073_741_824)
    """Bytes of values a Kafka transaction carries, give or take one row."""
    transaction_timeout_ms: int = Field(default=60_000, ge=1_000, le=900_000)
    """Kafka's `transaction.timeout.ms`: how long the broker waits for a publisher that died."""
    poll_ms: Milliseconds = 1_000
    """Milliseconds after which a lane looks for work without having been woken by NOTIFY."""
    idle_progress_s: float = Field(default=5.0, ge=0.1, le=3_600)
    """A lane without rows records its progress at most this often."""
    lease_s: float = Field(default=10.0, ge=1, le=600)
    """Seconds a lane's lease lasts unless renewed. Liveness only: Kafka fences."""
    headers: tuple[Literal["batch", "session_key", "session_outputs"], ...] = ()
    """Further headers beside `outbox-id`. Each costs speed."""

    @model_validator(mode="after")
    def _idle_below_lease(self) -> Self:
        if self.poll_ms > self.lease_s * 500:
            raise ValueError(
                f"poll_ms ({self.poll_ms}) must be at most half of lease_s ({self.lease_s}), or leases run out between polls"
            )
        return self


class LogSettings(Section):
    level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    """Least level that is written."""
    format: Literal["text", "json"] = "text"
    """Lines for people or for machines."""


class InjectionSettings(Section):
    """`[testing]`, which docs/configuration.md mentions only: see db/fault_points.py."""

    fault_file: Path | None = None
    """The plan of the faults that a test injects."""


class Settings(BaseSettings):
    """All sections. Environment variables win over the file."""

    model_config = SettingsConfigDict(
        env_prefix="OUTBOX_",
        env_nested_delimiter="__",
        frozen=True,
        extra="forbid",
        nested_model_default_partial_update=True,
    )

    postgres: PostgresSettings = PostgresSettings()
    kafka: KafkaSettings = KafkaSettings()
    source: SourceSettings = SourceSettings()
    session: SessionSettings = SessionSettings()
    transform: TransformSettings = TransformSettings()
    job: JobSettings = JobSettings()
    restart: RestartSettings = RestartSettings()
    publisher: PublisherSettings = PublisherSettings()
    log: LogSettings = LogSettings()
    testing: InjectionSettings = InjectionSettings()

    @model_validator(mode="after")
    def _faults_in_tests_only(self) -> Self:
        if self.testing.fault_file is not None and not self.postgres.database().startswith(_TEST_DATABASE):
            raise ValueError(
                f"[testing] makes the service die on purpose: it is refused unless the name of the database, "
                f"{self.postgres.database()!r}, begins with {_TEST_DATABASE!r}. Remove testing.fault_file."
            )
        return self

    @model_validator(mode="after")
    def _buckets_fill_partitions(self) -> Self:
        if self.job.buckets % self.job.shuffle_partitions:
            raise ValueError(
                f"job.buckets ({self.job.buckets}) must be a multiple of job.shuffle_partitions ({self.job.shuffle_partitions}), "
                "or some tasks get more buckets than others"
            )
        return self

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Environment before file: `load_settings` passes the file as init values."""
        return env_settings, init_settings


def load_settings(path: str | Path | None = None) -> Settings:
    """Read the TOML file at `path`, else at OUTBOX_CONFIG, else `outbox.toml` where it exists, and the environment.

    Raises SettingsError that names each wrong key, its value and the nearest known key.
    """
    named = path or os.environ.get("OUTBOX_CONFIG")
    file = Path(named or "outbox.toml")
    if named and not file.is_file():
        raise SettingsError(
            f"there is no settings file {str(file)!r}: name one with --config or OUTBOX_CONFIG"
        )
    try:
        values = tomllib.loads(file.read_text("utf-8")) if file.is_file() else {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{file} is not valid TOML: {error}") from error
    _refuse_unknown_environment()
    try:
        return Settings(**values)
    except ValidationError as error:
        where = f"{file} or the environment" if file.is_file() else "the environment"
        raise SettingsError(
            f"wrong settings in {where}:\n"
            + "\n".join(_explain(e["loc"], e["msg"], e["type"]) for e in error.errors())
        ) from error


def known_keys() -> list[str]:
    """Return every key as `section.key`."""
    return [
        f"{section}.{key}"
        for section, field in Settings.model_fields.items()
        if isinstance(field.annotation, type) and issubclass(field.annotation, Section)
        for key in field.annotation.model_fields
    ]


def _refuse_unknown_environment() -> None:
    known = {f"OUTBOX_{key.replace('.', '__')}".upper() for key in known_keys()} | {"OUTBOX_CONFIG"}
    for name in os.environ:
        if name.upper().startswith("OUTBOX_") and "__" in name and name.upper() not in known:
            if any(
                name.upper().startswith(f"{table}__")
                for table in (
                    "OUTBOX_KAFKA__OPTIONS",
                    "OUTBOX_KAFKA__JAVA_OPTIONS",
                    "OUTBOX_JOB__SPARK_OPTIONS",
                )
            ):
                continue
            near = difflib.get_close_matches(name.upper(), known, 1)
            raise SettingsError(
                f"unknown environment variable {name}" + (f": did you mean {near[0]}?" if near else "")
            )


def _explain(location: tuple[int | str, ...], message: str, kind: str) -> str:
    key = ".".join(str(part) for part in location)
    if kind == "extra_forbidden":
        near = difflib.get_close_matches(key, [*known_keys(), *Settings.model_fields], 1)
        return f"  {key}: unknown key" + (f", did you mean {near[0]}?" if near else "")
    return f"  {key or 'settings'}: {message}"
