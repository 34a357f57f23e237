"""Reads `outbox.delivery.kafka_offsets`: which offsets a transaction wrote. The publisher's login may write any JSON there."""

import re
from typing import Any

import orjson

from service.errors import RefusedError

TopicOffsets = dict[str, list[int]]
"""{partition: [first, last]} for one topic."""
SentOffsets = dict[str, TopicOffsets]
"""{topic: {partition: [first, last]}}"""

_PARTITION = re.compile(r"0|[1-9][0-9]{0,8}")
_MAX_OFFSET = 2**63 - 1
_SHOWN = 200


class MalformedOffsetsError(RefusedError):
    """The offsets of a delivery are not what a publisher writes."""


def read_sent_offsets(text: str | None) -> SentOffsets | str | None:
    """Parse the column's text; return None for unknown offsets, and the text itself, cut, if it is not what a publisher writes."""
    value = _parsed(text)
    if isinstance(value, dict) and all(map(_are_offsets, value.values())):
        return value
    return _cut(text)


def read_topic_offsets(text: str | None) -> TopicOffsets | str | None:
    """Parse the value of one topic, as `read_sent_offsets` does."""
    value: TopicOffsets | None = _parsed(text)
    return value if _are_offsets(value) else _cut(text)


def malformed(epoch: int | None, lane: int, seq: int | None, found: str) -> str:
    """Return the finding on a value that no publisher writes, for people."""
    return (
        f"epoch {epoch}, lane {lane}, delivery {seq}: `outbox.delivery.kafka_offsets` has {found!r}, which no publisher writes: somebody "
        "else has used its login"
    )


def shown_topic_offsets(found: TopicOffsets | str | None) -> str:
    """Return the offsets of one topic for people; empty if they are not known."""
    if isinstance(found, str):
        return f"malformed: {found}"
    return ", ".join(f"{partition}/{first}–{last}" for partition, (first, last) in (found or {}).items())


def shown_sent_offsets(found: SentOffsets | str | None) -> str:
    """Return the offsets of all topics for people; empty if they are not known."""
    if isinstance(found, str):
        return f"malformed: {found}"
    return "; ".join(f"{topic}: {shown_topic_offsets(each)}" for topic, each in (found or {}).items())


def _cut(text: str | None) -> str | None:
    return None if text is None else text[:_SHOWN]


def _parsed(text: str | None) -> Any:
    try:
        return orjson.loads(text or "null")
    except orjson.JSONDecodeError:  # nested too deeply
        return None


def _are_offsets(value: object) -> bool:
    return (
        isinstance(value, dict)
        and bool(value)
        and all(_PARTITION.fullmatch(partition) and _is_range(each) for partition, each in value.items())
    )


def _is_range(value: object) -> bool:
    match value:
        case [int(first), int(last)]:
            return type(first) is type(last) is int and 0 <= first <= last <= _MAX_OFFSET
    return False
