"""All sections of the settings, the rules between them, and the environment variable of each key."""

import os
from types import UnionType
from typing import Any, Literal, Self, get_args, get_origin

from pydantic import model_validator
from pydantic.fields import FieldInfo
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from service.errors import SettingsError
from service.settings.console import ConsoleSettings
from service.settings.job import (
    JobSettings,
    RestartSettings,
    SessionSettings,
    SourceSettings,
    TransformSettings,
)
from service.settings.observability import LogSettings, MetricsSettings, TracingSettings
from service.settings.publisher import PublisherSettings
from service.settings.retention import RetentionSettings
from service.settings.schema_registry import SchemaRegistrySettings
from service.settings.section import Section
from service.settings.servers import InjectionSettings, KafkaSettings, PostgresSettings

_TEST_DATABASE = "test_"


class Settings(BaseSettings):
    """All sections. Environment variables win over the file."""

    model_config = SettingsConfigDict(
        env_prefix="OUTBOX_",
        env_nested_delimiter="__",
        frozen=True,
        extra="forbid",
        nested_model_default_partial_update=True,
        hide_input_in_errors=True,  # as in a Section
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
        # A start asks Kafka twice while it holds the writer lock; the very first one, up to four times (starting_offsets).
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


def known_keys() -> list[str]:
    """Return every key as `section.key`."""
    return [
        f"{section}.{key}"
        for section, field in Settings.model_fields.items()
        if isinstance(field.annotation, type) and issubclass(field.annotation, Section)
        for key in field.annotation.model_fields
    ]
