"""The base of every table of the settings file, and the reader of such a file."""

import tomllib
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    TypeAdapter,
    ValidationError,
)

from service.errors import SecretUnreadableError


def _without_nul(value: str) -> str:
    # A client in C reads `none\0` as `none`, but no check here does.
    if "\0" in value:
        raise ValueError("has a NUL")
    return value


OptionText = Annotated[str, AfterValidator(_without_nul)]
ClientOptions = dict[OptionText, OptionText | int | float | bool]
"""Options of a server's client, by the client's names."""

_CLIENT_OPTIONS = TypeAdapter(ClientOptions)
Milliseconds = Annotated[int, Field(ge=1, le=86_400_000)]


def _without_login(value: str) -> str:
    if "@" in value:
        raise ValueError(
            "user and password do not belong into an address, which is logged (the text is not shown: it may be secret)"
        )
    return value


def _empty_is_none(given: object) -> object:
    # If a template names an environment variable, the variable is never absent: an empty one means none.
    text = given.get_secret_value() if isinstance(given, SecretStr) else given
    return None if isinstance(text, str) and not text.strip() else given


def require_address(url: str) -> None:
    """Raise ValueError for a URL without a host or a usable port: a login without its @ would be read as host and port."""
    try:
        parts = urlsplit(url)
        is_address = bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_address = False
    if not is_address:
        raise ValueError("its host or its port is none (the text is not shown: it may be secret)")


EmptyIsNone = BeforeValidator(_empty_is_none)
LoggedAddress = Annotated[str, AfterValidator(_without_login)]


class Section(BaseModel):
    """A table of the TOML file."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        use_attribute_docstrings=True,
        hide_input_in_errors=True,  # the value may be a secret, which the error's cause would show
    )


def read_toml(file: Path) -> dict[str, Any]:
    """Return the content of a TOML file. Raises OSError, ValueError."""
    try:
        return tomllib.loads(file.read_text("utf-8-sig"))
    except RecursionError:
        raise ValueError("it nests too deeply") from None


def secret_options(section: str, file: Path | None) -> ClientOptions:
    """Return a client's options out of the file that `secret_options_file` of a section names; none without a file.

    Reads the file each time. Raises SecretUnreadableError if it cannot be read or holds something other than options.
    """
    if file is None:
        return {}
    try:
        return _CLIENT_OPTIONS.validate_python(read_toml(file), strict=True)
    except ValidationError as error:
        wrong = ", ".join(sorted({str(each["loc"][0]) for each in error.errors()}))
        because = f"neither text (without NUL) nor a number: {wrong}"
    except (OSError, ValueError) as error:
        because = str(error)
    raise SecretUnreadableError(f"[{section}] secret_options_file = {str(file)!r} cannot be read: {because}")
