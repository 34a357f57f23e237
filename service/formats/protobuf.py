"""Protobuf schemas as message classes, and whole messages as plain values."""

import base64
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from service.formats.budget import MOST_NAME_CHARS
from service.formats.faults import fault
from service.formats.proto_budget import check_claims, forget
from service.formats.proto_builtin import builtin_files, builtin_imports
from service.formats.proto_text import descriptors, is_descriptor
from service.formats.remembered import SchemaCache
from service.formats.writer import SchemaUnusableError, WriterSchema

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.message import Message

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FILE = "the schema.proto"


@lru_cache(maxsize=1_000)
def message_class(schema: WriterSchema, path: tuple[int, ...]) -> type["Message"]:
    """Return the class of a message of the schema's file. `path`: its index in the file, then within each message.

    Raises SchemaUnusableError; ValueError if the file has no such message.
    """
    from google.protobuf.message import Message
    from google.protobuf.reflection import GeneratedProtocolMessageType

    found: Any = None
    for index in path:
        messages = _messages(schema) if found is None else found.nested_types
        if not 0 <= index < len(messages):
            raise ValueError(f"the schema has no message {'.'.join(map(str, path))}")
        found = messages[index]
    # Not by message_factory: it makes the classes of all nested messages at once, recursively.
    made: type[Message] = GeneratedProtocolMessageType(
        found.name, (Message,), {"DESCRIPTOR": found, "__module__": None}
    )
    return made


def parse(schema: WriterSchema, path: tuple[int, ...], body: bytes) -> "Message":
    """Return a message.

    Raises ValueError if the bytes are not a message of this class, SchemaUnusableError.
    """
    from google.protobuf.message import DecodeError

    made = message_class(schema, path)
    try:
        check_claims(made.DESCRIPTOR, body)
        return made.FromString(body)
    except DecodeError as error:
        raise ValueError(f"the value is not of its Protobuf schema: {error}") from error


def decode(schema: WriterSchema, path: tuple[int, ...], body: bytes) -> dict[str, Any]:
    """Return a message as a dict by field name: defaults for fields without presence, enums by name, a google.protobuf.Timestamp as a
    datetime.

    Raises as `parse`.
    """
    found: dict[str, Any] = _PlainMessages().of(parse(schema, path, body))
    return found


class _PlainMessages:
    """Turns messages into plain values; see `decode`. A value has one str for each name: the library would make one for each message."""

    def __init__(self) -> None:
        self._names: dict[Any, str] = {}

    def of(self, message: Any) -> Any:
        """Return a message, with all that it contains, as plain values."""
        # Ask the class: a field that is named like a method hides it in the message.
        made = type(message)
        if made.DESCRIPTOR.full_name == "google.protobuf.Timestamp":
            return timestamp(message)
        found = {}
        for each in made.DESCRIPTOR.fields:
            name = self._name(each)
            if not each.has_presence or made.HasField(message, name):
                found[name] = self._field(each, getattr(message, name))
        return found

    def _field(self, each: Any, value: Any) -> Any:
        if not each.is_repeated:
            return self._one(each, value)
        if each.message_type is not None and each.message_type.GetOptions().map_entry:
            of = each.message_type.fields_by_name["value"]
            return {key: self._one(of, value[key]) for key in value}
        return [self._one(each, item) for item in value]

    def _one(self, each: Any, value: Any) -> Any:
        if each.message_type is not None:
            return self.of(value)
        found = None if each.enum_type is None else each.enum_type.values_by_number.get(value)
        return value if found is None else self._name(found)

    def _name(self, of: Any) -> str:
        if (found := self._names.get(of)) is None:
            found = self._names[of] = str(of.name)
        return found


def timestamp(message: Any) -> datetime:
    """Return a google.protobuf.Timestamp as a datetime, to the microsecond.

    Raises ValueError if it is beyond datetime's range.
    """
    try:
        return _EPOCH + timedelta(seconds=message.seconds, microseconds=message.nanos // 1_000)
    except OverflowError as error:
        raise ValueError(f"a Timestamp of {message.seconds} seconds is out of range") from error


def enum_name(each: Any, number: int) -> str | int:
    """Return the name of an enum's number, or the number if it has no name."""
    found = each.enum_type.values_by_number.get(number)
    return number if found is None else str(found.name)


def why_unusable(schema: WriterSchema) -> str | None:
    """Return why no message can be read by a schema; None if some can."""
    found = _messages_or_why(schema)
    return found if isinstance(found, str) else None


def _messages(schema: WriterSchema) -> tuple[Any, ...]:
    found = _messages_or_why(schema)
    if isinstance(found, str):
        raise SchemaUnusableError(found)
    return found


_read_schemas: SchemaCache[WriterSchema, tuple[Any, ...] | str] = SchemaCache()


def _messages_or_why(schema: WriterSchema) -> tuple[Any, ...] | str:
    """Return the descriptors of the file's messages, or the schema's fault. Both are cached: a million records may ask."""
    if (found := _read_schemas.get(schema)) is None:
        found = _read(schema)
        if _read_schemas.put(schema, found, schema.chars):
            # A file stays in memory for as long as one of its messages.
            message_class.cache_clear()
            forget()
    return found


def _read(schema: WriterSchema) -> tuple[Any, ...] | str:
    from google.protobuf.descriptor_pool import DescriptorPool

    text, pool = schema.text, DescriptorPool()
    references = {name: each for name, each in schema.references if name not in builtin_files()}
    try:
        if not all(map(is_descriptor, [text, *references.values()])):
            text, references = descriptors(text, references)
        files = [_file(name, each) for name, each in (*references.items(), (_FILE, text))]
        for file in (*builtin_imports(name for each in files for name in each.dependency), *files):
            pool.Add(file)
        return tuple(pool.FindFileByName(_FILE).message_types_by_name.values())
    except Exception as error:  # noqa: BLE001 - of the library, for descriptors that nobody has checked
        return fault(error, "not a Protobuf schema")


def _file(name: str, text: str) -> "FileDescriptorProto":
    from google.protobuf import descriptor_pb2
    from google.protobuf.message import DecodeError

    try:
        file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except DecodeError as error:
        raise SchemaUnusableError(f"the descriptor of {name!r} cannot be read: {error}") from error
    file.name = name
    _check_names(file)
    return file


def _check_names(file: "FileDescriptorProto") -> None:
    """Refuse long names: the library repeats a package or message in each full name, and a decoded value repeats names of fields and enum
    values that take none of its bytes.
    """
    enums: list[Any] = list(file.enum_type)
    in_values: list[int] = []
    todo: list[tuple[int, Any]] = [(len(file.package), None)]
    todo += [(len(file.package), each) for each in (*file.message_type, *file.service)]
    while todo:
        size, of = todo.pop()
        size += 0 if of is None else 1 + len(of.name)
        if size > MOST_NAME_CHARS:
            raise SchemaUnusableError(
                f"its package or a message has a full name of over {MOST_NAME_CHARS} characters"
            )
        todo += [(size, each) for each in getattr(of, "nested_type", ())]
        enums += getattr(of, "enum_type", ())
        in_values += [len(each.name) for each in getattr(of, "field", ())]
    in_values += [len(each.name) for enum in enums for each in enum.value]
    if max(in_values, default=0) > MOST_NAME_CHARS:
        raise SchemaUnusableError(
            f"a field or an enum's value has a name of over {MOST_NAME_CHARS} characters"
        )
