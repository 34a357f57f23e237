"""Collects the schemas that a schema refers to, directly or through others.

A reference that can never be used is an error for good; a missing schema may still be registered.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from service.formats.registry.answers import MAX_CHARS, MAX_ID, quoted

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import Schema, SchemaReference
    from confluent_kafka.schema_registry.error import SchemaRegistryError

_MAX_REFERENCES = 200
_MAX_WAITING = 10_000
"""References that are still to be looked up."""
_MAX_NAME_CHARS = 1_000
"""Characters of a reference's name, and of its subject, which becomes part of a url."""


class ReferencesUnusableError(Exception):
    """The references of a schema cannot be used; the text continues a sentence that begins with the schema."""

    def __init__(self, why: str, *, may_come: bool = False) -> None:
        super().__init__(why)
        self.may_come = may_come
        """Whether the registry lacks one of them, which may still be registered."""


def references_of(
    schema: "Schema", version: "Callable[[str, int], Schema | SchemaRegistryError]"
) -> tuple[tuple[str, str], ...]:
    """Return (name, text) of each reference, after its own references. `version` requests a version of a subject.

    Raises ReferencesUnusableError, and what `version` raises.
    """
    found: dict[str, str] = {}
    opened: dict[str, str] = {}
    left = MAX_CHARS - len(schema.schema_str or "")
    todo = [(reference, False) for reference in reversed(schema.references or ())]
    while left >= 0 and todo:
        reference, below_done = todo.pop()
        if (fixed := _fixed_version(reference)) is None:
            raise ReferencesUnusableError("has a reference that names no version of a subject")
        name, subject, number = fixed
        if below_done:
            found[name] = opened[name]
            continue
        if name in found:
            continue
        if name in opened:
            raise ReferencesUnusableError(f"refers to {name!r}, which refers to itself")
        if len(opened) == _MAX_REFERENCES or len(todo) > _MAX_WAITING:
            raise ReferencesUnusableError(f"has over {_MAX_REFERENCES} references")
        answer = version(subject, number)
        if isinstance(answer, Exception):
            of = f"refers to {name!r}, version {number} of subject {subject!r}, which the registry does not"
            if answer.http_status_code == 404:
                raise ReferencesUnusableError(f"{of} have", may_come=True)
            raise ReferencesUnusableError(f"{of} give: {quoted(answer)}")
        opened[name] = answer.schema_str or ""
        left -= len(opened[name])
        todo.append((reference, True))
        todo += [(each, False) for each in reversed(answer.references or ())]
    if left < 0:
        raise ReferencesUnusableError(f"has over {MAX_CHARS} characters")
    return tuple(found.items())


def _fixed_version(reference: "SchemaReference") -> tuple[str, str, int] | None:
    """Return name, subject and version of a reference whose meaning never changes; None for any other. Subject and version become part of a
    url, and "latest", or -1, may be another version tomorrow.
    """
    name, subject, version = reference.name, reference.subject, reference.version
    if name is None or not subject or max(len(name), len(subject)) > _MAX_NAME_CHARS:
        return None
    if not subject.isprintable() or subject in (".", ".."):
        return None
    return (name, subject, version) if type(version) is int and 0 < version <= MAX_ID else None
