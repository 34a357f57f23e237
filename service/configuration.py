"""docs/configuration.md, generated from the settings: `python -m service.configuration > docs/configuration.md`."""

import types
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import orjson
from pydantic import SecretStr
from pydantic.fields import FieldInfo

from service.settings import Section, Settings

_HEAD = """# Configuration

Generated from `service/settings/` by `make docs`; a test keeps it equal.

Both services and `outbox-migrate` read one TOML file (`--config`, else `$OUTBOX_CONFIG`, else `outbox.toml` in the working directory,
if no other user may have written it). Every key is also an environment variable `OUTBOX_<SECTION>__<KEY>`, which wins over the file;
lists and tables are JSON there. Unknown keys are refused; editors complete and check the file by `outbox.schema.json`, which
`spark-job init` writes beside it (in VS Code: Even Better TOML). Secrets are never printed. In brackets: default, type where the
default does not show it, and bounds.
"""

LEFT_OUT = "testing"


def documented_sections() -> dict[str, type[Section]]:
    """Return {name: class} of the sections that people set, in their order."""
    return {
        name: field.annotation
        for name, field in Settings.model_fields.items()
        if name != LEFT_OUT and isinstance(field.annotation, type) and issubclass(field.annotation, Section)
    }


def markdown() -> str:
    """Return the whole page."""
    return _HEAD + "\n" + "\n".join(_section(*each) for each in documented_sections().items())


def _section(name: str, section: type[Section]) -> str:
    lines = [f"## [{name}]", ""]
    for key, field in section.model_fields.items():
        values = "; ".join(filter(None, (_default(field), _values(field))))
        lines.append(f"- `{key}` ({values}): {' '.join((field.description or '').split())}")
    return "\n".join(lines) + "\n"


def _default(field: FieldInfo) -> str:
    value = field.get_default(call_default_factory=True)
    if value is None:
        return ""
    if isinstance(value, SecretStr):
        value = value.get_secret_value()
    return f"`{orjson.dumps(value).decode()}`"


def _values(field: FieldInfo) -> str:
    bounds = {type(bound).__name__.lower(): bound for bound in field.metadata}
    low = getattr(bounds.get("ge"), "ge", None) or getattr(bounds.get("gt"), "gt", None)
    high = getattr(bounds.get("le"), "le", None)
    default = field.get_default(call_default_factory=True)
    # A number, a text or a truth value shows its type.
    parts = (
        []
        if field.annotation in (int, float, str, bool) and default is not None
        else [_type(field.annotation)]
    )
    if high is not None:
        parts.append(f"{_number(low or 0)} to {_number(high)}")
    return ", ".join(parts)


def _number(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


def _type(annotation: Any) -> str:
    origin = get_origin(annotation)
    if origin is Literal:
        return "/".join(f"`{value}`" for value in get_args(annotation))
    if origin in (tuple, list):
        return f"list of {_type(get_args(annotation)[0])}"
    if origin is dict:
        return "table"
    if origin is Annotated:
        return _type(get_args(annotation)[0])
    if origin in (types.UnionType, Union):
        return " or ".join(_type(part) for part in get_args(annotation) if part is not types.NoneType)
    names = {
        "str": "text",
        "int": "integer",
        "float": "number",
        "bool": "true or false",
        "datetime": "time",
        "SecretStr": "text, secret",
    }
    name = str(annotation.__name__)
    return names.get(name, name.lower())


if __name__ == "__main__":
    print(markdown(), end="")
