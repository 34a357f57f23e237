"""What every table of the settings file is."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Milliseconds = Annotated[int, Field(ge=1, le=86_400_000)]


class Section(BaseModel):
    """A table of the TOML file."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)
