"""Detects that an output topic was deleted and created again: its id is not the id that was recorded before the first record.

A lane looks again when the topic's offsets begin anew (`begun_anew` in kafka/open_transactions.py).
"""

from collections.abc import Callable, Mapping
from typing import Any

import orjson
import psycopg
from psycopg.types.json import Jsonb

from db.statements import queries
from publisher.protocol import remediation
from publisher.protocol.stop_reasons import StoppedError, StopReason

_IDENTITY = queries("publisher", "identity")


def bind_topics(connection: psycopg.Connection[Any], topic_ids: Mapping[str, str]) -> dict[str, str]:
    """Record the ids of output topics before the first record to each; return every recorded id.

    Raises StoppedError for a topic that now has another id.
    """
    bound: dict[str, str]
    row = connection.execute(
        _IDENTITY["bind_topics"],
        {"topic_ids": Jsonb(dict(topic_ids), dumps=orjson.dumps)},
    ).fetchone()
    bound = row[0] if row is not None else {}
    check_topics(bound, topic_ids)
    return bound


class BoundTopics:
    """The recorded ids of the output topics. A lane has one object for each tenure."""

    def __init__(self, connection: Callable[[], psycopg.Connection[Any]]) -> None:
        """`connection` returns a connection that leads to this outbox."""
        self._connection = connection
        self._ids: dict[str, str] = {}

    def check(self, ids: Mapping[str, str]) -> None:
        """Raise StoppedError unless each topic has the recorded id; record the ids of new topics."""
        if any(name not in self._ids for name in ids):
            self._ids = bind_topics(self._connection(), ids)
        else:
            check_topics(self._ids, ids)


def check_topics(bound: Mapping[str, str], topic_ids: Mapping[str, str]) -> None:
    """Raise StoppedError for a topic whose id is not the recorded one, or that has no recorded id."""
    for name, topic_id in topic_ids.items():
        if bound.get(name) != topic_id:
            raise StoppedError(
                StopReason.OUTPUT_TOPIC_REPLACED,
                f"output topic {name!r} had the id {bound.get(name)}, now it is {topic_id}: it was deleted and made "
                "again, or the cluster was rebuilt, and what was delivered to it is gone; a transaction that was under way "
                f"then may already be in the new one. {remediation.replaced_topic(name)}",
            )
