"""Take clock records out before records are read: they are not events, and only state a time (docs/decisions/0047)."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_job.input.columns import CLOCK_MARK
from spark_job.sessions.clock import Ticks
from spark_job.sessions.errors import InputSchemaError
from spark_job.sessions.settings import MAX_TS_MS, MIN_TS_MS, AssemblySettings


def without_clock_records(new: pa.Table, settings: AssemblySettings) -> tuple[pa.Table, Ticks | None]:
    """Return the other new records, and the times of the clock records, with codes from 0 on (None if there are none).

    A clock record has the mark, a possible time and no value: a marked record with a value may be an event.

    Raises InputSchemaError if the column `clock` is missing.
    """
    if not settings.clock_records:
        return new, None
    if "clock" not in new.column_names:
        raise InputSchemaError(f"the table of new records lacks 'clock'; it has {new.column_names}")
    marks = new.column("clock")
    if marks.null_count == len(marks):
        return new, None
    is_marked = pc.fill_null(pc.equal(marks, CLOCK_MARK), False)
    ts = new.column("ts").to_numpy()
    found = pc.and_(is_marked, pc.is_null(new.column("value"))).to_numpy()
    found = found & (ts >= MIN_TS_MS) & (ts <= MAX_TS_MS)
    if not found.any():
        return new, None
    by_broker = new.column("by_broker").to_numpy()[found].astype(bool)
    ticks = Ticks(new.column("offset").to_numpy()[found], ts[found], np.arange(found.sum()), by_broker)
    return new.filter(pa.array(~found)), ticks
