"""The settings of both services: one TOML file, every key also an environment variable `OUTBOX_<SECTION>__<KEY>`.

Validated once at the start; unknown keys are refused with the nearest known one. docs/configuration.md lists every key.

- settings.py: all sections, the rules between them, and the environment.
- loading.py: reads the file and the environment, and explains each wrong key.
- servers.py, schema_registry.py: where Postgres, Kafka and the registry are. dsn.py, java_client.py: a DSN, and the words of Kafka's Java
  client.
- job.py, publisher.py, retention.py, console.py, observability.py: what each part of the services needs.
- section.py: the base of every section.
"""

from service.settings.console import ConsoleSettings
from service.settings.job import (
    JobSettings,
    RestartSettings,
    SessionSettings,
    SourceSettings,
    TransformSettings,
)
from service.settings.loading import load_settings
from service.settings.observability import LogSettings, MetricsSettings, TracingSettings
from service.settings.publisher import PublisherSettings
from service.settings.retention import RetentionSettings
from service.settings.schema_registry import SchemaRegistrySettings
from service.settings.section import Section
from service.settings.servers import InjectionSettings, KafkaSettings, PostgresSettings
from service.settings.settings import Settings, known_keys

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
