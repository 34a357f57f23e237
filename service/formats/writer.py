"""A schema as the registry keeps it under one id, and the errors of a registry. Plain values, which never change."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

_MOST_WHY: Final = 2_000
"""Most characters of the reason why a schema cannot be used.

A library may quote the whole schema, and every record that names it becomes a letter.
"""


@dataclass(frozen=True, slots=True)
class WriterSchema:
    """A schema with its references."""

    kind: Literal["AVRO", "PROTOBUF", "JSON"]
    text: str
    """The document of Avro or JSON Schema; the descriptor of a Protobuf file in base64, or its text if the registry gives only that."""
    references: tuple[tuple[str, str], ...] = ()
    """(name, text) of the schemas that it refers to, each after its own references."""

    @property
    def chars(self) -> int:
        """Its size in a cache: its characters, plus a constant for each schema."""
        return 1_000 + len(self.text) + sum(len(text) for _, text in self.references)


@dataclass(frozen=True, slots=True)
class UnusableSchema:
    """A schema by which no value can be read."""

    why: str
    may_come: bool = False
    """Whether the registry lacks it or one of its references: it may still be registered."""

    def __post_init__(self) -> None:
        """Truncate a long reason."""
        object.__setattr__(self, "why", self.why[:_MOST_WHY])


Schemas = Mapping[int, WriterSchema | UnusableSchema]
"""By id."""
NO_SCHEMAS: Schemas = {}
"""For formats that have none."""


class RegistryAwayError(Exception):
    """The schema registry does not answer or cannot serve the request now; or a program that a schema needs cannot run now."""


class RegistryRefusedError(Exception):
    """The schema registry refuses a request, or its answer is not a registry's."""


class SchemaUnusableError(Exception):
    """A schema that the registry has cannot be used here."""

    def __init__(self, why: str) -> None:
        super().__init__(why[:_MOST_WHY])
