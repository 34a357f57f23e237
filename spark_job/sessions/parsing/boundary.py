"""The boundary around the readers of values: if a record raises an exception, only that record is refused; all others are read.

A record that is left out becomes a `malformed` letter (sessions/parsing/records.py, `_malformed`).
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from service.formats.faults import fault
from spark_job.sessions.parsing.fields import ReadColumns, ReadFields
from spark_job.sessions.settings import FieldPath

Int = npt.NDArray[np.int64]
Wanted = Mapping[FieldPath, pa.DataType]


def read_each(read: Callable[[Int], ReadFields], rows: Int, wanted: Wanted) -> ReadFields:
    """Return what `read` returns for some rows. If it raises, halve the rows, down to single ones; a single row that raises is left out.

    Raises errors that are the machine's fault.
    """
    try:
        return read(rows)
    except Exception as error:  # noqa: BLE001 - of any library, for any bytes
        fault(error)
    if len(rows) < 2:
        return joined([], wanted)
    middle = len(rows) // 2
    return joined([read_each(read, each, wanted) for each in (rows[:middle], rows[middle:])], wanted)


def refusal(ask: Callable[[], str]) -> str:
    """Return what is wrong with a value that was left out: `ask`'s answer, or what it raises. Raises as `read_each`."""
    try:
        return ask()
    except Exception as error:  # noqa: BLE001 - as above
        return fault(error, "it cannot be read")


def joined(parts: Sequence[ReadFields], wanted: Wanted) -> ReadColumns:
    """Return several groups' rows in ascending order."""
    if not parts:
        return ReadColumns(np.zeros(0, np.int64), {path: pa.array([], kind) for path, kind in wanted.items()})
    rows = np.concatenate([part.rows for part in parts])
    order = np.argsort(rows)
    places = pa.array(order)
    return ReadColumns(
        rows[order],
        {
            path: pa.concat_arrays([part.column(path).cast(kind) for part in parts]).take(places)
            for path, kind in wanted.items()
        },
    )
