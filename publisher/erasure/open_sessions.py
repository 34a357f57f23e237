"""Tells whether sessions that were open when the command began are still open. Only the job's cache and Kafka have the keys of sessions
that are open."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import psycopg

from db.statements import queries

_ERASURE = queries("publisher.erasure", "erasure")

InputPartition = tuple[str, int]
"""(topic id, partition)."""


class OpenInput(NamedTuple):
    """For each input partition: `end`, how far the job has read, exclusive, and `open_from`, where its oldest session begins that may be
    open. `open_from` has no entry for a partition without such a session."""

    end: Mapping[InputPartition, int]
    open_from: Mapping[InputPartition, int]

    def open_since(self, begin: Mapping[InputPartition, int]) -> list[str]:
        """Return the partitions in which a session that began below `begin` may still be open."""
        return [
            f"{topic_id}/{partition}"
            for (topic_id, partition), first in self.open_from.items()
            if first < begin.get((topic_id, partition), 0)
        ]


def read_open_input(connection: psycopg.Connection[Any]) -> OpenInput:
    """Return the read and open offsets of each input partition; empty if the job has never run. Raises psycopg.Error."""
    rows = connection.execute(_ERASURE["open_input"]).fetchall()
    return OpenInput(
        {(topic_id, partition): end for topic_id, partition, end, _ in rows},
        {(topic_id, partition): first for topic_id, partition, _, first in rows if first is not None},
    )
