"""The interface of a format's reader: it returns fields of values as columns."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_job.sessions.settings import AssemblySettings, FieldPath

Int = npt.NDArray[np.int64]


class ReadFields(Protocol):
    """The values that could be read, and their fields."""

    @property
    def rows(self) -> Int:
        """Positions in the array that was read, ascending."""

    def column(self, path: FieldPath) -> pa.Array:
        """Return a field of these rows, NULL if it is missing: text, or a time in milliseconds."""


class ValueDecoder(Protocol):
    """Reads the fields that the settings name. Its verdict on a value depends on the value alone."""

    def decode(self, payloads: pa.LargeBinaryArray) -> ReadFields:
        """Read payloads (no nulls); rows that are not in the result are malformed."""

    def refusal_of(self, payload: bytes) -> str:
        """Return what is wrong with a payload that `decode` left out."""


@dataclass(frozen=True, slots=True)
class ReadColumns:
    """ReadFields from arrays."""

    rows: Int
    columns: Mapping[FieldPath, pa.Array] = field(default_factory=dict)

    def column(self, path: FieldPath) -> pa.Array:
        """See ReadFields."""
        return self.columns[path]


def wanted_fields(settings: AssemblySettings) -> dict[FieldPath, Literal["text", "time"]]:
    """Return the fields that the settings name."""
    wanted: dict[FieldPath, Literal["text", "time"]] = dict.fromkeys(text_paths(settings), "text")
    if settings.time_path is not None:
        wanted[settings.time_path] = "time"
    return wanted


def text_paths(settings: AssemblySettings) -> list[FieldPath]:
    """Return the text fields that the settings name."""
    return [path for path in (settings.type_path, settings.key_path, settings.event_id_path) if path]
