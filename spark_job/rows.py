"""The rows that come out of Spark's one action: sessions, dead letters and bucket summaries in one flat table.

The executors fill it (`worker.py`), the driver reads it (`batch.py`). Columns that a kind does not use are NULL.
"""

from typing import Final

SESSION: Final = 0
LETTER: Final = 1
SUMMARY: Final = 2

# name, Spark SQL type: the DDL of the stateful operator's output
COLUMNS: Final = (
    ("kind", "tinyint"),
    ("bucket", "int"),
    ("source", "int"),  # number of (topic, partition), see source.py
    ("session_key", "string"),
    ("first_offset", "bigint"),
    ("last_offset", "bigint"),
    ("closing_offset", "bigint"),
    ("started_ms", "bigint"),
    ("ended_ms", "bigint"),
    ("events", "int"),  # input events of the session or letter
    ("lane_hash", "bigint"),
    ("outputs", "int"),
    # sessions: encoded elements of session_output's arrays; letters: of the kept events' values, offsets (in `partitions`), times, and
    # types (in `headers`, where they were in one)
    ("topics", "binary"),
    ("values", "binary"),
    ("keys", "binary"),
    ("headers", "binary"),
    ("partitions", "binary"),
    ("timestamps", "binary"),
    ("kept", "int"),  # letters: events kept
    ("reason", "string"),
    ("detail", "string"),  # letters: for people; summaries: JSON
)
NAMES: Final = tuple(name for name, _ in COLUMNS)
DDL: Final = ", ".join(f"`{name}` {kind}" for name, kind in COLUMNS)
STATE_DDL: Final = "blob binary"
