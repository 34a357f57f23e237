"""Tells whether sessions are still open that were open when the command began. Only the job's cache and Kafka have their keys."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import psycopg

from db.statements import queries

_ERASURE = queries("publisher.erasure", "erasure")

InputPartition = tuple[str, int]
"""(topic id, partition)."""


class OpenInput(NamedTuple):
    """For each input partition: how far the job has read, exclusive, and where the oldest session begins that may be open, if one may."""

    end: Mapping[InputPartition, int]
    open_from: Mapping[InputPartition, int]

    def open_since(self, begin: Mapping[InputPartition, int]) -> list[str]:
        """Return the partitions in which a session that began below `begin` may be open still."""
        return [
            f"{topic_id}/{partition}"
            for (topic_id, partition), first in self.open_from.items()
            if first < begin.get((topic_id, partition), 0)
        ]


def read_open_input(connection: psycopg.Connection[Any]) -> OpenInput:
    """Return it; empty where the job has never run. Raises psycopg.Error."""
    rows = connection.execute(_ERASURE["open_input"]).fetchall()
    return OpenInput(
        {(topic_id, partition): end for topic_id, partition, end, _ in rows},
        {(topic_id, partition): first for topic_id, partition, _, first in rows if first is not None},
    )
