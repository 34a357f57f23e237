"""What every table of the settings file is, and how such a file is read."""

import tomllib
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

Milliseconds = Annotated[int, Field(ge=1, le=86_400_000)]


class Section(BaseModel):
    """A table of the TOML file."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


def read_toml(file: Path) -> dict[str, Any]:
    """Return what a TOML file holds. Raises OSError, ValueError."""
    try:
        return tomllib.loads(file.read_text("utf-8"))
    except RecursionError:
        raise ValueError("it nests too deeply") from None
