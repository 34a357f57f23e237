"""Outputs in Confluent's wire format, by confluent-kafka's own serializers. A schema's id is looked up once in a worker's life.

The schema that the transform names must be registered under the output's subject; only with `[schema_registry] auto_register` does a
worker register it. A refusal by the registry stops the job, with the registry's message: no session is at fault. A value that does not fit
its schema fails its session.
"""

import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from service.formats.registry.client import configuration
from service.formats.registry.schemas import RegistrySchemas, schemas_of
from service.formats.writer import RegistryRefusedError
from spark_job.api import OutputSchema, WithSchema
from spark_job.outputs.settings import OutputSchemaRules

_MOST_SERIALIZERS = 500


class OutputSchemaRefusedError(Exception):
    """The registry refuses the schema of an output: it is not under the subject, or not compatible."""


class OutputEncoder:
    """Encodes values for one registry."""

    def __init__(self, registry: RegistrySchemas, rules: OutputSchemaRules) -> None:
        self._registry = registry
        self._client = registry.client
        self._rules = rules
        self._serializers: dict[tuple[str, OutputSchema], Callable[..., Any]] = {}

    def __call__(self, topic: str, value: WithSchema) -> bytes:
        """Return the value as it is sent.

        Raises ValueError if the value does not fit its schema, OutputSchemaRefusedError, RegistryAwayError.
        """
        from confluent_kafka.serialization import MessageField, SerializationContext, SerializationError

        try:
            if self._client is not self._registry.client:
                self._client = self._registry.client
                self._serializers.clear()
            key = topic, value.schema
            serializer = self._serializers.get(key)
            if serializer is None:
                if len(self._serializers) >= _MOST_SERIALIZERS:
                    # An event may name the topic, and with the subject strategy `record` none is refused.
                    self._serializers.clear()
                serializer = self._serializers[key] = self._made(value.schema)
            with self._registry.errors():
                return serializer(value.value, SerializationContext(topic, MessageField.VALUE))  # type: ignore[no-any-return]
        except RegistryRefusedError as error:
            cause = error.__cause__  # raised by a serializer, or by reading an answer that is not JSON
            if isinstance(cause, ValueError) and not isinstance(cause, json.JSONDecodeError):
                raise ValueError(f"its value is not of its {value.schema.format} schema: {cause}") from error
            raise OutputSchemaRefusedError(
                f"an output for {topic!r} has a schema that is not to be used: {error}. Register it first ([schema_registry] "
                "auto_register is off by default), or correct [schema_registry] subject_name_strategy"
            ) from error
        except (SerializationError, TypeError, KeyError, AttributeError, EOFError, OverflowError) as error:
            raise ValueError(
                f"its value is not of its {value.schema.format} schema: {type(error).__name__}: {error}"
            ) from error

    def _made(self, schema: OutputSchema) -> Callable[..., Any]:
        client = self._client
        made: Callable[..., Any]
        conf = {
            "auto.register.schemas": self._rules.auto_register,
            "subject.name.strategy.type": self._rules.subject_name_strategy.upper(),
        }
        if schema.format == "avro":
            from confluent_kafka.schema_registry.avro import AvroSerializer

            made = AvroSerializer(client, schema.definition, conf=conf)
            return made
        if schema.format == "protobuf":
            from confluent_kafka.schema_registry.protobuf import ProtobufSerializer

            made = ProtobufSerializer(schema.definition, client, conf)
            return made
        from confluent_kafka.schema_registry.json_schema import JSONSerializer

        made = JSONSerializer(schema.definition, client, conf=conf)
        return made


def output_encoder(
    registry: Mapping[str, Any], rules: OutputSchemaRules
) -> Callable[[str, WithSchema], bytes] | None:
    """Return this process' encoder. `registry`: options of the registry's client; if empty, return None."""
    return _output_encoder(configuration(registry), rules) if registry else None


@lru_cache(maxsize=4)  # a new secret creates another encoder
def _output_encoder(configured: str, rules: OutputSchemaRules) -> OutputEncoder:
    options = json.loads(configured)[0]
    return OutputEncoder(schemas_of(options), rules)
