"""The Protobuf files that are built into Confluent's clients: schemas may import them although no registry has them."""

from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

_PREFIXES = ("google/protobuf/", "google/type/", "confluent/")


@cache
def builtin_files() -> dict[str, "FileDescriptorProto"]:
    """The files by name, each after those that it imports."""
    from confluent_kafka.schema_registry.confluent import meta_pb2
    from confluent_kafka.schema_registry.confluent.type import decimal_pb2, variant_pb2
    from confluent_kafka.schema_registry.confluent.types import decimal_pb2 as former_decimal_pb2
    from google.protobuf import (
        any_pb2,
        api_pb2,
        descriptor_pb2,
        duration_pb2,
        empty_pb2,
        field_mask_pb2,
        source_context_pb2,
        struct_pb2,
        timestamp_pb2,
        type_pb2,
        wrappers_pb2,
    )
    from google.type import (
        calendar_period_pb2,
        color_pb2,
        date_pb2,
        datetime_pb2,
        dayofweek_pb2,
        expr_pb2,
        fraction_pb2,
        interval_pb2,
        latlng_pb2,
        localized_text_pb2,
        money_pb2,
        month_pb2,
        phone_number_pb2,
        postal_address_pb2,
        quaternion_pb2,
        timeofday_pb2,
    )
    from google.type import decimal_pb2 as type_decimal_pb2

    modules = [
        *(any_pb2, api_pb2, descriptor_pb2, duration_pb2, empty_pb2, field_mask_pb2, source_context_pb2),
        *(struct_pb2, timestamp_pb2, type_pb2, wrappers_pb2),
        *(calendar_period_pb2, color_pb2, date_pb2, datetime_pb2, dayofweek_pb2, type_decimal_pb2, expr_pb2),
        *(fraction_pb2, interval_pb2, latlng_pb2, localized_text_pb2, money_pb2, month_pb2),
        *(phone_number_pb2, postal_address_pb2, quaternion_pb2, timeofday_pb2),
        *(meta_pb2, decimal_pb2, variant_pb2, former_decimal_pb2),
    ]
    found: dict[str, FileDescriptorProto] = {}
    for each in modules:
        _add(each.DESCRIPTOR, found)
    return found


def builtin_imports(names: Iterable[str]) -> list["FileDescriptorProto"]:
    """Return the built-in files among `names` and their imports, each after its own.

    Only these: a schema may itself define what other built-in files define.
    """
    builtin, found = builtin_files(), set[str]()
    todo = list(names)
    while todo:
        name = todo.pop()
        if name in builtin and name not in found:
            found.add(name)
            todo += builtin[name].dependency
    return [file for name, file in builtin.items() if name in found]


def _add(file: Any, found: dict[str, "FileDescriptorProto"]) -> None:
    from google.protobuf import descriptor_pb2

    for each in file.dependencies:
        _add(each, found)
    if file.name.startswith(_PREFIXES):
        made = descriptor_pb2.FileDescriptorProto()
        file.CopyToProto(made)
        found.setdefault(made.name, made)
