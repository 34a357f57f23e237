"""Outboxes whose old outputs are archived; what is in an archive, as anybody's pyarrow reads it."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.dataset
import pyarrow.parquet

from service.lifecycle.fault_points import Fault
from service.settings import RetentionSettings, Settings
from tests.support.outbox.batches import Outbox, Session, read_offsets, simple
from tests.support.outbox.old_outputs import (
    Command,
    add_batches,
    deliver_all,
    partitions,
    retention_settings,
)
from tests.support.queries import query

NEWEST = 20_005
"""Two whole partitions, and one in use."""
STEPS = [
    ("archive.during_file", 1, ["0", "1", "2"]),
    ("archive.after_file", 1, ["0", "1", "2"]),
    ("archive.after_manifest", 1, ["0", "1", "2"]),
    ("retention.before_drop", 2, ["1", "2"]),
    ("retention.after_drop", 1, ["1", "2"]),
]
"""At which step a run is killed, at which of its visits, and the partitions that Postgres then has."""


def varied(end: int) -> dict[str, Sequence[Session]]:
    """A row with everything that a row can have, and one of a session without outputs."""
    return {
        "vari\u00e9": [
            Session(
                values=[b"\x00\xff", None, b""],
                end=end,
                keys=[b"own", b"own two", None],
                headers=[[["a", "text"], ["b", {"base64": "AAE="}], ["c", None]], None, []],
                partitions=[1, None, None],
                timestamps_ms=[None, 5, None],
            ),
            Session(values=[b"second"], end=end + 1),
        ],
        "without": [Session(values=[], end=end + 2)],
    }


def old_outbox(dsn: str, topic: str = "out") -> Outbox:
    """Three batches of the first partition, and one of the second, on two days; everything is delivered, and old."""
    outbox = Outbox(dsn, topic)
    outbox.batch(simple(1, keys=3))
    outbox.batch(simple(2, keys=3) | varied(500))
    outbox.batch(simple(3, keys=3))
    add_batches(dsn, 10_000)
    outbox.batch(simple(4, keys=4))
    add_batches(dsn, NEWEST)
    query(dsn, "UPDATE outbox.batch SET created_at = created_at - interval '1 day' WHERE batch_id < 3")
    read_offsets(dsn)
    deliver_all(dsn, NEWEST)
    return outbox


def may_archive(dsn: str) -> None:
    """Let the login of retention read what it archives."""
    query(dsn, "GRANT SELECT ON outbox.session_output TO outbox_retention")
    query(dsn, "GRANT SELECT (session_key) ON outbox.parked TO outbox_retention")


def archive_settings(dsn: str, folder: Path, **retention: Any) -> Any:
    """Settings of retention with an archive in `folder`."""
    return retention_settings(dsn, archive=f"file://{folder}", **retention)


def archived(
    outbox: Outbox, settings: Settings, folder: Path, *, fault: Fault | None = None, **retention: Any
) -> Settings:
    """Let the first two partitions of a delivered outbox become old, and archive them; return the settings with the archive."""
    add_batches(outbox.dsn, NEWEST)
    read_offsets(outbox.dsn)
    deliver_all(outbox.dsn, NEWEST)
    may_archive(outbox.dsn)
    command = Command(archive_settings(outbox.dsn, folder, **retention), folder.parent)
    code, output = command.run("run", "--yes", fault=fault)
    assert code == 0, f"{code}: {output}"
    assert partitions(outbox.dsn)[0] == "2"
    return settings.model_copy(update={"retention": RetentionSettings(archive=f"file://{folder}")})


def files(folder: Path) -> list[str]:
    """All files below the outbox's folder, sorted."""
    (own,) = folder.glob("outbox=*")
    return sorted(str(file.relative_to(own)) for file in own.rglob("*") if not file.is_dir())


def read_archive(folder: Path) -> list[dict[str, Any]]:
    """Every row of the archive in order, read by pyarrow's dataset, as docs/archive.md says."""
    (own,) = folder.glob("outbox=*")
    table = pyarrow.dataset.dataset(own, format="parquet", partitioning="hive").to_table()
    rows: list[dict[str, Any]] = table.sort_by(
        [("batch_id", "ascending"), ("session_key", "ascending")]
    ).to_pylist()
    return rows


def stored_rows(dsn: str, last_batch: int) -> list[dict[str, Any]]:
    """What Postgres has of the columns of `session_output` up to a batch, in order."""
    names = [
        name
        for (name,) in query(
            dsn,
            "SELECT attname::text FROM pg_attribute WHERE attrelid = 'outbox.session_output'::regclass AND attnum > 0 ORDER BY attnum",
        )
    ]
    rows = query(
        dsn,
        'SELECT row_to_json(o)::text, o."values", o.keys, o.headers::text[] FROM outbox.session_output o WHERE o.batch_id <= %s'
        " ORDER BY o.batch_id, o.session_key",
        last_batch,
    )
    return [
        {name: json.loads(text)[name] for name in names}
        | {"values": values, "keys": keys, "headers": headers}
        for text, values, keys, headers in rows
    ]
