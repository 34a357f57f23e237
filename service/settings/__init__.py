"""The settings of both services: one TOML file, every key also an environment variable `OUTBOX_<SECTION>__<KEY>`.

Validated once at the start; unknown keys are refused with the nearest known one. docs/configuration.md lists every key.
"""

import difflib
import os
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Self, get_args, get_origin

from pydantic import ValidationError, model_validator
from pydantic.fields import FieldInfo
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from service.errors import SettingsError
from service.private_file import others_may_write
from service.settings.console import ConsoleSettings
from service.settings.job import (
    JobSettings,
    RestartSettings,
    SessionSettings,
    SourceSettings,
    TransformSettings,
)
from service.settings.metrics import MetricsSettings
from service.settings.publisher import PublisherSettings
from service.settings.removed import REMOVED
from service.settings.retention import RetentionSettings
from service.settings.schema_registry import SchemaRegistrySettings
from service.settings.section import Section, read_toml
from service.settings.servers import InjectionSettings, KafkaSettings, LogSettings, PostgresSettings
from service.settings.tracing import TracingSettings

__all__ = [
    "ConsoleSettings",
    "InjectionSettings",
    "JobSettings",
    "KafkaSettings",
    "LogSettings",
    "MetricsSettings",
    "PostgresSettings",
    "PublisherSettings",
    "RestartSettings",
    "RetentionSettings",
    "SchemaRegistrySettings",
    "Section",
    "SessionSettings",
    "Settings",
    "SourceSettings",
    "TracingSettings",
    "TransformSettings",
    "known_keys",
    "load_settings",
]

_TEST_DATABASE = "test_"


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
    schema_registry: SchemaRegistrySettings = SchemaRegistrySettings()
    transform: TransformSettings = TransformSettings()
    job: JobSettings = JobSettings()
    restart: RestartSettings = RestartSettings()
    publisher: PublisherSettings = PublisherSettings()
    metrics: MetricsSettings = MetricsSettings()
    console: ConsoleSettings = ConsoleSettings()
    tracing: TracingSettings = TracingSettings()
    retention: RetentionSettings = RetentionSettings()
    log: LogSettings = LogSettings()
    testing: InjectionSettings = InjectionSettings()

    @model_validator(mode="after")
    def _faults_in_tests_only(self) -> Self:
        logins = (None, self.retention.dsn, self.console.dsn)
        names = sorted({self.postgres.logged_in_by(login).database() for login in logins})
        if self.testing.fault_file is not None and not all(name.startswith(_TEST_DATABASE) for name in names):
            raise ValueError(
                f"[testing] makes the service die on purpose: it is refused unless the name of each database, "
                f"{', '.join(map(repr, names))}, begins with {_TEST_DATABASE!r}. Remove testing.fault_file."
            )
        return self

    @model_validator(mode="after")
    def _kafka_answers_within_a_transaction(self) -> Self:
        # A start asks Kafka twice while it holds the writer lock.
        waits_ms = 2_000 * self.kafka.request_timeout_s
        if self.postgres.idle_in_transaction_timeout_ms < waits_ms:
            raise ValueError(
                f"[postgres] idle_in_transaction_timeout_ms = {self.postgres.idle_in_transaction_timeout_ms} is less than twice [kafka] "
                f"request_timeout_s = {self.kafka.request_timeout_s}: Postgres would end a start that waits for a slow Kafka. Set it to "
                f"{waits_ms} or more, or lower the other."
            )
        return self

    @model_validator(mode="after")
    def _format_has_what_it_needs(self) -> Self:
        source, session = self.source, self.session
        if source.has_schemas and not self.schema_registry.url:
            raise ValueError(f"[source] format = {source.format!r} needs [schema_registry] url")
        if source.schema_id != "payload" and not source.has_schemas:
            raise ValueError(
                f"[source] schema_id = {source.schema_id!r}: format {source.format!r} has no schemas"
            )
        if source.format == "bytes":
            of_value = {
                "key": session.key,
                "type": session.type,
                "event_id": session.event_id,
                "time": session.time,
            }
            named = [
                f"{name} = {path!r}" for name, path in of_value.items() if path and path.startswith("$.")
            ]
            if named:
                raise ValueError(
                    f"[source] format = 'bytes' reads nothing out of the values, but [session] names fields of them: {', '.join(named)}. "
                    "Name headers (`header:NAME`), for the key also `key`, for the time only `timestamp`"
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
        return _Environment(settings_cls), init_settings


class _Environment(EnvSettingsSource):
    def decode_complex_value(self, field_name: str, field: FieldInfo, value: Any) -> Any:
        """Read a list or a table. Its text is not shown: it may be secret."""
        may_be_text = get_origin(field.annotation) is UnionType and str in get_args(field.annotation)
        if may_be_text and not value.lstrip().startswith("["):
            raise ValueError("it is text")  # pydantic then takes it as it is
        try:
            return super().decode_complex_value(field_name, field, value)
        except (ValueError, RecursionError) as error:
            if any(get_origin(part) is Literal for part in get_args(field.annotation)):
                return value  # a text may stand there as well
            names = [name for name in os.environ if os.environ[name] == value and _names(name, field_name)]
            raise SettingsError(
                f"environment variable {' or '.join(names)} is not JSON, as a list or a table must be there "
                f"""('["a", "b"]', '{{"a": 1}}'): {type(error).__name__}"""
            ) from error


def _names(variable: str, field: str) -> bool:
    return variable.upper().startswith("OUTBOX_") and variable.lower().endswith(field.lower())


def load_settings(path: str | Path | None = None) -> Settings:
    """Read the TOML file at `path`, else at OUTBOX_CONFIG, else `outbox.toml` where it exists, and the environment.

    Raises SettingsError that names each wrong key, its value and the nearest known key, or whose the file is.
    """
    named = path or os.environ.get("OUTBOX_CONFIG")
    file = Path(named or "outbox.toml")
    if named and not file.is_file():
        raise SettingsError(
            f"there is no settings file {str(file)!r}: name one with --config or OUTBOX_CONFIG"
        )
    try:
        if not named:
            _refuse_of_others(file)
        values = read_toml(file) if file.is_file() else {}
    except ValueError as error:
        raise SettingsError(f"{file} is not valid TOML: {error}") from error
    except OSError as error:
        raise SettingsError(f"{file} cannot be read: {error}") from error
    # BaseSettings would take `_env_file` for a parameter of its own, and leave out one of [job] and [Job].
    if strange := values.keys() - Settings.model_fields.keys():
        raise SettingsError(
            f"wrong settings in {file}:\n"
            + "\n".join(_explain((name,), "", "extra_forbidden") for name in sorted(strange))
        )
    _refuse_unknown_environment()
    try:
        return Settings(**values)
    except ValidationError as error:
        where = f"{file} or the environment" if file.is_file() else "the environment"
        raise SettingsError(
            f"wrong settings in {where}:\n"
            + "\n".join(_explain(e["loc"], e["msg"], e["type"]) for e in error.errors())
        ) from error


def _refuse_of_others(file: Path) -> None:
    """Raise SettingsError for a file that lies here by chance and that another user wrote: settings name servers, files and code."""
    try:
        found = (file.stat(), file.lstat())
    except FileNotFoundError:
        return
    if found[1].st_uid not in (0, os.geteuid()) or others_may_write(found[0]):
        raise SettingsError(
            f"{str(file)!r} in this folder is another user's, or others may write to it, so it is not read unasked. `chmod go-w {file}`, "
            "or name it with --config or OUTBOX_CONFIG if it is yours to trust"
        )


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
                    "OUTBOX_SCHEMA_REGISTRY__OPTIONS",
                )
            ):
                continue
            key = name.removeprefix("OUTBOX_").replace("__", ".", 1).lower()
            if key in REMOVED:
                raise SettingsError(f"environment variable {name} was removed: {REMOVED[key]}")
            near = difflib.get_close_matches(name.upper(), known, 1)
            raise SettingsError(
                f"unknown environment variable {name}" + (f": did you mean {near[0]}?" if near else "")
            )


def _explain(location: tuple[int | str, ...], message: str, kind: str) -> str:
    key = ".".join(str(part) for part in location)
    if key in REMOVED:
        return f"  {key} was removed: {REMOVED[key]}"
    if kind == "extra_forbidden":
        near = difflib.get_close_matches(key, [*known_keys(), *Settings.model_fields], 1)
        return f"  {key}: unknown key" + (f", did you mean {near[0]}?" if near else "")
    return f"  {key or 'settings'}: {message}"
