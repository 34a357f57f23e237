"""Events as columns. A row is an index into the columns; `Events.ordered` copies no payload.

The assembler judges events by (key, offset), see `groups`. Events are never ordered by time.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_job.sessions.parsing.column_bytes import views

Int = npt.NDArray[np.int64]
Kinds = npt.NDArray[np.int8]

START, ENTRY, END = 0, 1, 2


@dataclass(frozen=True, slots=True)
class Events:
    """Events of one partition: in `Records` ordered by offset, in `EventChunk` by (session's start, offset)."""

    offset: Int
    ts: Int
    """Epoch milliseconds."""
    kind: Kinds
    """START, ENTRY or END; without meaning in rows of malformed records."""
    payload: pa.LargeBinaryArray
    event_id: pa.LargeBinaryArray | None
    """None if event ids are not configured."""
    type: pa.LargeBinaryArray | None = None
    """Types (UTF-8), kept if kinds do not determine them: entries have several types, or other rules applied to an event. NULL: this
    event's kind determines its type. None: that is so for all events.
    """
    bounds: Int = field(init=False)
    data: memoryview = field(init=False)

    def __post_init__(self) -> None:
        bounds, data = views(self.payload)
        object.__setattr__(self, "bounds", bounds)
        object.__setattr__(self, "data", data)

    def __len__(self) -> int:
        return len(self.offset)

    def sizes(self) -> Int:
        """The payloads' sizes in bytes, of all rows."""
        return np.diff(self.bounds)

    def raw(self, row: int) -> bytes:
        """The payload of one row."""
        return bytes(self.data[self.bounds[row] : self.bounds[row + 1]])

    def raws(self, begin: int, end: int) -> list[bytes]:
        """The payloads of the rows [begin, end)."""
        return self.payload.slice(begin, end - begin).to_pylist()  # type: ignore[no-any-return]

    def types(self, begin: int, end: int, names: Sequence[str]) -> list[str]:
        """The types of the rows [begin, end). `names[kind]`: the type of an event without one of its own."""
        own = None if self.type is None else self.type.slice(begin, end - begin)
        return _types(self.kind[begin:end], own, names)

    def ordered(self, rows: npt.NDArray[Any]) -> "OrderedEvents":
        """Return some events in that order; their payloads stay where they are."""
        return OrderedEvents(self.offset[rows], self.ts[rows], self.kind[rows], self, rows)

    def take(self, rows: npt.NDArray[Any]) -> "Events":
        """Return the events of some rows, in that order."""
        places = pa.array(rows)
        return Events(
            self.offset[rows],
            self.ts[rows],
            self.kind[rows],
            self.payload.take(places),
            None if self.event_id is None else self.event_id.take(places),
            None if self.type is None else self.type.take(places),
        )

    @classmethod
    def concat(cls, parts: Sequence["Events"]) -> "Events":
        """Return the events of several parts, one after the other. Parts without event ids get NULLs if others have some."""
        if len(parts) == 1:
            return parts[0]
        has_ids = any(part.event_id is not None for part in parts)
        has_types = any(part.type is not None for part in parts)
        return cls(
            np.concatenate([part.offset for part in parts]),
            np.concatenate([part.ts for part in parts]),
            np.concatenate([part.kind for part in parts]),
            pa.concat_arrays([part.payload for part in parts]),
            pa.concat_arrays([part.ids() for part in parts]) if has_ids else None,
            pa.concat_arrays([part.own_types() for part in parts]) if has_types else None,
        )

    def ids(self) -> pa.LargeBinaryArray:
        """Return the event ids, NULL if there are none."""
        return pa.nulls(len(self), pa.large_binary()) if self.event_id is None else self.event_id

    def own_types(self) -> pa.LargeBinaryArray:
        """Return the column `type`, NULL if there is none."""
        return pa.nulls(len(self), pa.large_binary()) if self.type is None else self.type

    @classmethod
    def empty(cls) -> "Events":
        """No events."""
        nothing = np.zeros(0, np.int64)
        return cls(nothing, nothing, np.zeros(0, np.int8), pa.array([], pa.large_binary()), None)


@dataclass(frozen=True, slots=True)
class OrderedEvents:
    """Events by (key, offset). Their payloads are not moved: most are read only once, by the transform, or never."""

    offset: Int
    ts: Int
    kind: Kinds
    _of: Events
    _rows: npt.NDArray[Any]

    def __len__(self) -> int:
        return len(self.offset)

    @property
    def event_id(self) -> pa.LargeBinaryArray | None:
        """None if event ids are not configured."""
        ids = self._of.event_id
        return None if ids is None else ids.take(pa.array(self._rows))

    def sizes(self) -> Int:
        """The payloads' sizes in bytes, of all rows."""
        return self._of.sizes()[self._rows]  # type: ignore[no-any-return]

    def raws(self, begin: int, end: int) -> list[bytes]:
        """The payloads of the rows [begin, end)."""
        return self._of.payload.take(pa.array(self._rows[begin:end])).to_pylist()  # type: ignore[no-any-return]

    def types(self, begin: int, end: int, names: Sequence[str]) -> list[str]:
        """The types of the rows [begin, end). `names[kind]`: the type of an event without one of its own."""
        own = None if self._of.type is None else self._of.type.take(pa.array(self._rows[begin:end]))
        return _types(self.kind[begin:end], own, names)

    def take(self, rows: npt.NDArray[Any]) -> Events:
        """The events of some rows, in that order, with their payloads."""
        return self._of.take(self._rows[rows])


def _types(kind: Kinds, own: pa.LargeBinaryArray | None, names: Sequence[str]) -> list[str]:
    by_kind = [names[each] for each in kind.tolist()]
    if own is None:
        return by_kind
    return [
        of_kind if text is None else text.decode()
        for of_kind, text in zip(by_kind, own.to_pylist(), strict=True)
    ]
