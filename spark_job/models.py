"""Read an event's value into a class that the transform defines: a pydantic model or a dataclass. Pydantic validates the fields."""

from collections.abc import Hashable, Mapping
from functools import cache
from typing import Any, TypeVar, cast

M = TypeVar("M")

_SHOWN_CHARS = 100


class EventError(ValueError):
    """An event does not fit the class that the transform asked for."""


def read(model: type[M], document: bytes | Mapping[str, Any], event: str) -> M:
    """Return a JSON document, or a decoded value, as `model`. `event`: names the event in messages.

    Raises EventError that names each wrong field, TypeError if pydantic cannot read `model`.
    """
    # Imported here: most transforms need no pydantic.
    from pydantic import ValidationError

    adapter = _adapter(cast(Hashable, model))
    try:
        if isinstance(document, bytes):
            return adapter.validate_json(document)  # type: ignore[no-any-return]
        return adapter.validate_python(document)  # type: ignore[no-any-return]
    except ValidationError as error:
        wrong = "; ".join(_wrong(each) for each in error.errors(include_url=False))
        # Drops the cause, whose text would contain the whole values.
        raise EventError(f"{event} is no {_name(model)}: {wrong}") from None


@cache
def _adapter(model: Any) -> Any:
    from pydantic import TypeAdapter
    from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError

    try:
        return TypeAdapter(model)
    except (PydanticUserError, PydanticUndefinedAnnotation) as error:
        raise TypeError(
            f"{_name(model)} is neither a pydantic model nor a dataclass that can be read: {error.message}"
        ) from None


def _name(model: object) -> str:
    return getattr(model, "__name__", None) or repr(model)


def _wrong(found: Mapping[str, Any]) -> str:
    field = ".".join(map(str, found["loc"])) or "the value"
    given = found["input"]
    if found["type"] == "missing" or isinstance(given, dict | list | bytes):
        return f"{field}: {found['msg']}"
    text = repr(given)
    return (
        f"{field}: {found['msg']} (it is {text if len(text) <= _SHOWN_CHARS else text[:_SHOWN_CHARS] + '…'})"
    )
