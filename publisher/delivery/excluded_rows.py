"""The rows that a delivery does not send, because they are parked or were skipped. Pure. (An erased row is in no table any more.)"""

from collections.abc import Iterable

from publisher.protocol.records import Row, RowKey


class ExcludedRows:
    """Holds only the keys that the delivery has not passed. Not thread-safe. If `recorded` raises, use a new object."""

    def __init__(self, recorded: Iterable[RowKey] = ()) -> None:
        """`recorded`: the rows after the cursor that were excluded earlier, in ascending order. There may be millions, so they are read
        only as far as the delivery has come.
        """
        self._recorded = iter(recorded)
        self._next = next(self._recorded, None)
        self._keys: set[RowKey] = set()

    def add(self, row: RowKey) -> None:
        """Exclude a row."""
        self._keys.add(row)

    def move_to(self, rows: list[Row]) -> None:
        """Read the recorded keys up to the last of these rows. Forget the keys before the first one: earlier rows do not come again."""
        if not rows:
            return
        first, last = rows[0].row_key, rows[-1].row_key
        if self._keys:
            self._keys = {key for key in self._keys if key >= first}
        while self._next is not None and self._next <= last:
            if self._next >= first:
                self._keys.add(self._next)
            self._next = next(self._recorded, None)

    def without(self, rows: list[Row]) -> list[Row]:
        """Return the rows that are not excluded."""
        if not self._keys:
            return rows
        return [row for row in rows if row.row_key not in self._keys]
