"""The size of a decoded Protobuf message, from its bytes alone: an empty message takes two bytes, but is decoded with the defaults of its
fields.

For most schemas, one examination shows that no message exceeds the budget. The messages of the other schemas, and very large messages, are
stepped over before they are parsed.
"""

from functools import lru_cache
from typing import Any

from service.formats.budget import MORE, MORE_FOR_EACH_BYTE, MOST_MORE, most_values

_WITH_PRESENCE = 8
"""This many optional fields count as one field: an unset field is not decoded, but has a slot in the parser's memory."""
_MOST_FIELDS = 5_000
"""Fields examined for each message type that records name: a hundred thousand types may contain one another."""
_LEAST_BYTES = 2
"""Least bytes of a nested message: its tag and its length."""
_VARINT, _FIXED64, _SIZED, _GROUP, _GROUP_END, _FIXED32 = range(6)


def check_claims(of: Any, body: bytes) -> None:
    """Raise ValueError if more values would be decoded from a message than its bytes can hold. `of`: its descriptor."""
    if len(body) > always_fits(of):
        left = most_values(len(body)) - _weight(of)
        if left < 0 or not _Steps(body, left).fit(of):
            raise ValueError("it claims more values than its bytes can hold")


def forget() -> None:
    """Release all descriptors."""
    always_fits.cache_clear()
    _weight.cache_clear()


@lru_cache(maxsize=1_000)
def always_fits(of: Any) -> int:
    """Return the size in bytes up to which no message exceeds the budget; -1 if each must be checked. `of`: its descriptor."""
    if (below := _below(of)) is None:
        return -1
    heaviest = max(map(_weight, below), default=0)
    for_each_byte = heaviest / _LEAST_BYTES
    if _weight(of) > MORE or for_each_byte > MORE_FOR_EACH_BYTE + 1:
        return -1
    return int((MOST_MORE - MORE) / for_each_byte) if for_each_byte > 1 else 1 << 40


def _below(of: Any) -> list[Any] | None:
    """Return the message types that a message may contain, itself included if it can; None if they have over _MOST_FIELDS fields."""
    found: dict[str, Any] = {}
    todo = [of]
    left = _MOST_FIELDS
    while todo:
        fields = todo.pop().fields
        left -= len(fields)
        if left < 0:
            return None
        for each in fields:
            if each.message_type is not None and each.message_type.full_name not in found:
                found[each.message_type.full_name] = each.message_type
                todo.append(each.message_type)
    return list(found.values())


@lru_cache(maxsize=10_000)
def _weight(of: Any) -> int:
    """Return the number of values of an empty message. A map's entry counts with the message in it, which is decoded even if absent."""
    fields = list(of.fields)
    if of.GetOptions().map_entry:
        value = of.fields_by_name["value"].message_type
        return 2 if value is None else 2 + _weight(value)
    optional = sum(bool(each.has_presence) for each in fields)
    return 1 + len(fields) - optional + optional // _WITH_PRESENCE


class _Steps:
    """Steps over one message, tag by tag. Stops early if the bytes are not a message: the parser will fail."""

    def __init__(self, body: bytes, left: int) -> None:
        self._body, self._at, self._left = body, 0, left

    def fit(self, of: Any) -> bool:
        """Return whether the message's values fit in what is left of the budget."""
        # (descriptor, end), the innermost last; a group has the end of its parent.
        inside: list[tuple[Any, int]] = [(of, len(self._body))]
        while inside:
            within, end = inside[-1]
            if self._at >= end:
                inside.pop()
                continue
            tag = self._varint()
            kind = tag & 7
            below = None if within is None else within.fields_by_number.get(tag >> 3)
            message = None if below is None or kind not in (_SIZED, _GROUP) else below.message_type
            if message is not None:
                self._left -= _weight(message)
                if self._left < 0:
                    return False
            if kind == _GROUP:
                inside.append((message, end))
            elif kind == _GROUP_END:
                inside.pop()
            elif kind == _SIZED:
                size = self._varint()
                if message is not None:
                    inside.append((message, min(end, self._at + size)))
                else:
                    self._at += size
            elif kind == _VARINT:
                self._varint()
            elif kind in (_FIXED64, _FIXED32):
                self._at += 8 if kind == _FIXED64 else 4
            else:
                return True
        return True

    def _varint(self) -> int:
        value = shift = 0
        while self._at < len(self._body):
            byte = self._body[self._at]
            self._at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80 or shift >= 70:
                break
        return value
