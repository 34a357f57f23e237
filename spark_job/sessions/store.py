"""The events of one call as columns: those of the open sessions first, then the new ones. Rows are positions in it."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_job.sessions.decode import views

Int = npt.NDArray[np.int64]
Kinds = npt.NDArray[np.int8]

START, ENTRY, END = 0, 1, 2


@dataclass(frozen=True, slots=True)
class EventStore:
    """Events by row. Nothing is copied until an event is asked for."""

    offset: Int
    ts: Int
    """Epoch milliseconds."""
    kind: Kinds
    """START, ENTRY or END; anything in rows of malformed records."""
    payload: pa.LargeBinaryArray
    event_id: pa.LargeStringArray | None
    """None where event ids are not configured."""
    names: tuple[str, str, str]
    """The types' names by kind."""
    bounds: Int = field(init=False)
    data: memoryview = field(init=False)

    def __post_init__(self) -> None:
        bounds, data = views(self.payload)
        object.__setattr__(self, "bounds", bounds)
        object.__setattr__(self, "data", data)

    def sizes(self) -> Int:
        """The payloads' sizes in bytes, of all rows."""
        return np.diff(self.bounds)

    def raw(self, row: int) -> bytes:
        """The payload of one row."""
        return bytes(self.data[self.bounds[row] : self.bounds[row + 1]])

    def raws(self, rows: npt.NDArray[Any]) -> list[bytes]:
        """The payloads of some rows."""
        return self.payload.take(pa.array(rows)).to_pylist()  # type: ignore[no-any-return]
