"""A schema as the registry keeps it under one id, and the errors of a registry. Plain values, which never change."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

_MOST_WHY: Final = 2_000
"""Most characters of the reason why a schema cannot be used.

A library may quote all of it, and every record that names it becomes a letter.
"""


@dataclass(frozen=True, slots=True)
class WriterSchema:
    """A schema with all that it refers to."""

    kind: Literal["AVRO", "PROTOBUF", "JSON"]
    text: str
    """Of Avro and JSON Schema the document; of Protobuf a file's descriptor in base64, or its text where the registry gives only that."""
    references: tuple[tuple[str, str], ...] = ()
    """(name, text) of the schemas that it refers to; each comes behind those that it refers to itself."""

    @property
    def chars(self) -> int:
        """Its size in a cache: its characters, and some for every schema."""
        return 1_000 + len(self.text) + sum(len(text) for _, text in self.references)


@dataclass(frozen=True, slots=True)
class UnusableSchema:
    """The schema of an id by which no value can be read."""

    why: str
    may_come: bool = False
    """The registry does not have it, or what it refers to: it may be registered yet."""

    def __post_init__(self) -> None:
        """Cut what is too long."""
        object.__setattr__(self, "why", self.why[:_MOST_WHY])


Schemas = Mapping[int, WriterSchema | UnusableSchema]
"""By id."""
NO_SCHEMAS: Schemas = {}
"""For formats that have none."""


class RegistryAwayError(Exception):
    """The schema registry does not answer, or answers that it cannot; or what a schema needs cannot be run now."""


class RegistryRefusedError(Exception):
    """The schema registry refuses what it is asked, or gives an answer that cannot be one of a registry."""


class SchemaUnusableError(Exception):
    """A schema that the registry has cannot be used here."""

    def __init__(self, why: str) -> None:
        super().__init__(why[:_MOST_WHY])
