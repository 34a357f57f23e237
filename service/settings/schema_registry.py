"""The registry of the schemas of Avro, Protobuf and JSON Schema, and the subjects of outputs."""

from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator

from service.settings.section import ClientOptions, Section, require_address, secret_options

# Spark repeats a failed task several times, and then the job restarts: one retry of the client is enough.
_DEFAULTS: ClientOptions = {"max.retries": 1, "retries.wait.ms": 500}


class SchemaRegistrySettings(Section):
    url: str = ""
    """The registry, `http(s)://host:port/path`; several, separated by commas, are asked in turn. Empty: none."""
    options: ClientOptions = Field(default={}, repr=False)
    """Options of confluent-kafka's client (`ssl.ca.location`, `basic.auth.user.info`, …)."""
    secret_options_file: Path | None = None
    """A TOML file with more options, for passwords; wins over `options`."""
    timeout_s: float = Field(default=5, ge=0.1, le=600)
    """Seconds to wait for an answer."""
    auto_register: bool = False
    """Register missing schemas of outputs."""
    subject_name_strategy: Literal["topic", "record", "topic_record"] = "topic"
    """Subject of an output's schema: `TOPIC-value`, the record's name, or `TOPIC-` and the record's name."""

    @field_validator("url")
    @classmethod
    def _url_without_secrets(cls, value: str) -> str:
        if "@" in value:
            raise ValueError(
                "user and password do not belong into the url, which is logged: use basic.auth.user.info in secret_options_file "
                "(the text is not shown: it may be secret)"
            )
        if value and not all(each.strip().startswith(("http://", "https://")) for each in value.split(",")):
            raise ValueError(f"{value!r} is not http:// or https://")
        for each in value.split(",") if value else ():
            require_address(each.strip())
        return value

    def client(self) -> ClientOptions:
        """Return the configuration of confluent-kafka's schema registry client; empty if there is no url.

        Raises SettingsError if the file of the secret options cannot be read.
        """
        if not self.url:
            return {}
        return (
            _DEFAULTS
            | {"timeout": self.timeout_s}
            | self.options
            | secret_options("schema_registry", self.secret_options_file)
            | {"url": self.url}
        )
