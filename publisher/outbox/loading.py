"""Decodes equal text arrays of `session_output` only once. They repeat from row to row, and decoding one costs more than all other values
of its row."""

from typing import Any

import psycopg
from psycopg.abc import AdaptContext, Buffer
from psycopg.adapt import Loader, Transformer
from psycopg.pq import Format

_TEXT_ARRAY_OID = 1009
_MOST_KNOWN_BYTES = 1 << 20
"""The most bytes of arrays that are remembered, counted as Postgres sends them. As lists they take up to fifteen times as much memory."""


class RepeatedArrayLoader(Loader):
    """Remembers the arrays that it has decoded. Equal bytes yield the same list, so nobody may change the list."""

    format = Format.BINARY

    def __init__(self, oid: int, context: AdaptContext | None = None) -> None:
        super().__init__(oid, context)
        self._load = Transformer().get_loader(oid, Format.BINARY).load
        self._known: dict[bytes, Any] = {}
        self._known_bytes = 0

    def load(self, data: Buffer) -> Any:
        """Return the list."""
        key = bytes(data)
        found = self._known.get(key)
        if found is None:
            self._known_bytes += len(key)
            if self._known_bytes > _MOST_KNOWN_BYTES:
                self._known.clear()
                self._known_bytes = len(key)
            found = self._known[key] = self._load(data)
        return found


def read_repeated_arrays(connection: psycopg.Connection[Any]) -> None:
    """Make a connection decode equal text arrays of one result only once."""
    connection.adapters.register_loader(_TEXT_ARRAY_OID, RepeatedArrayLoader)
