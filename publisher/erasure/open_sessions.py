"""Are sessions open that were so when the command began? Their keys are in the job's cache and in Kafka alone."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import psycopg

from db.statements import queries

_ERASURE = queries("publisher.erasure", "erasure")

Offsets = Mapping[str, Mapping[str, int]]
"""{topic id: {partition: offset}}"""


class Position(NamedTuple):
    """How far the job has read, exclusive, and what is open there, as `outbox.batch` has both."""

    end: Offsets
    open: Mapping[str, Mapping[str, Mapping[str, Any]]]

    def open_since(self, begin: Offsets) -> list[str]:
        """Return the partitions in which a session that began below `begin` may be open still."""
        return [
            f"{topic_id}/{partition}"
            for topic_id, partitions in sorted(self.open.items())
            for partition, found in sorted(partitions.items())
            # Without a digest it is not known what is open.
            if (found["sessions"] or "digest" not in found)
            and found["safe"] < begin.get(topic_id, {}).get(partition, 0)
        ]


def read_position(connection: psycopg.Connection[Any]) -> Position:
    """Return it; empty where the job has never run. Raises psycopg.Error."""
    row = connection.execute(_ERASURE["position"]).fetchone()
    return Position({}, {}) if row is None else Position(*row)
