"""A small outbox in which everything agrees: four stream batches, a requeue, two lanes of which one lags, letters and a replay."""

import re
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

from psycopg.types.json import Jsonb

from tests.support.outbox.valid_rows import NO_OFFSETS, OutboxRows
from tests.support.paths import ROOT

PAGE = (ROOT / "docs" / "audit.md").read_text("utf-8")
QUERIES: dict[str, str] = dict(re.findall(r"```sql\n-- query: (\w+)\n(.*?)```", PAGE, re.DOTALL))
"""The queries of the page by their names."""

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
BATCHES = 4
LANES = {"a": 0, "b": 0, "c": 1, "d": 1}
"""Session key -> its lane. Each has one session in every batch, with an output for `out` and one for `log`."""
VALUES = [b'{"n": 1}', b"{}"]


def minutes(number: float) -> datetime:
    """So many minutes after noon."""
    return NOON + timedelta(minutes=number)


def offsets(batch: int) -> Jsonb:
    """Where the input stands after so many batches."""
    return Jsonb({"topic": {"0": batch * 100}})


def fill_audited_outbox(outbox: OutboxRows) -> None:
    """Fill an empty outbox.

    Batch n is committed at n minutes past noon. Row d of batch 2 was parked and goes out again as batch 5. Lane 0 has delivered everything
    in two transactions, the second from within batch 2 on; lane 1 stands after batch 3.
    """
    outbox.insert("generation", start_offsets=offsets(0))
    outbox.insert("lane_epoch", lanes=2)
    for number in range(1, BATCHES + 1):
        for place, (key, lane) in enumerate(LANES.items()):
            outbox.insert("session_output", **row(key, number, lane, place))
        outbox.insert("batch", **ledger_row(number))
    outbox.insert("session_output", **row("d", 2, 1, 3) | {"batch_id": 5})
    outbox.insert(
        "batch",
        **ledger_row(5)
        | NO_OFFSETS
        | {"kind": "requeue", "sessions": 1, "output_events": 2, "output_bytes": 10, "input_events": 0},
    )
    _deliver(outbox, 0, [((0, None), (2, "a"), 3, 2.5), ((2, "a"), (4, None), 5, 4.5)])
    _deliver(outbox, 1, [((0, None), (3, None), 5, 3.5)])
    outbox.insert(
        "parked",
        session_key="d",
        batch_id=2,
        lane=1,
        state="requeued",
        requeued_batch=5,
        created_at=minutes(3.25),
        state_changed_at=minutes(5),
    )
    outbox.insert("dead_letter", session_key=None, reason="malformed", first_offset=50, last_offset=50, closing_offset=50,
                  created_at=minutes(1))  # fmt: skip
    outbox.insert("dead_letter", session_key="a", reason="restarted", state="resolved", resolved_batch=2, created_at=minutes(1),
                  state_changed_at=minutes(2))  # fmt: skip
    outbox.insert("replay", state="done", topics=["out"], rows_sent=7, events_sent=7, rows_total=7, events_total=7, cursor_batch=2,
                  created_at=minutes(10), state_changed_at=minutes(11))  # fmt: skip


def row(key: str, batch: int, lane: int, place: int) -> dict[str, Any]:
    """The row of a key in a batch: the session at that place of the batch's hundred offsets."""
    start = (batch - 1) * 100 + place * 10
    return {
        "session_key": key,
        "batch_id": batch,
        "lane": lane,
        "session_starts": [start],
        "session_ends": [start + 9],
        "topics": ["out", "log"],
        "values": VALUES,
    }


def ledger_row(number: int) -> dict[str, Any]:
    """The ledger's row of a stream batch."""
    return {
        "batch_id": number,
        "spark_batch": number - 1,
        "commit_id": uuid.UUID(int=number),
        "start_offsets": offsets(number - 1),
        "end_offsets": offsets(number),
        "input_events": 100,
        "sessions": len(LANES),
        "output_events": 2 * len(LANES),
        "output_bytes": len(LANES) * sum(map(len, VALUES)),
        "created_at": minutes(number),
    }


Cursor = tuple[int, str | None]


def _deliver(outbox: OutboxRows, lane: int, transactions: list[tuple[Cursor, Cursor, int, float]]) -> None:
    """Record transactions (cursor before, cursor after, rows, minutes past noon) of a lane, and its mirror."""
    last = transactions[-1][1]
    outbox.insert(
        "lane",
        lane=lane,
        seq=len(transactions),
        cursor_batch=last[0],
        cursor_key=last[1],
        cursor_commit_id=uuid.UUID(int=last[0]),
        sessions=sum(rows for _, _, rows, _ in transactions),
        events=sum(2 * rows for _, _, rows, _ in transactions),
        mirrored_at=minutes(transactions[-1][3]),
    )
    for seq, (after, to, rows, at) in enumerate(transactions, 1):
        outbox.insert(
            "delivery",
            lane=lane,
            seq=seq,
            after_batch=after[0],
            after_key=after[1],
            to_batch=to[0],
            to_key=to[1],
            sessions=rows,
            events=2 * rows,
            kafka_offsets=Jsonb(
                {"out": {str(lane): [seq * 100, seq * 100 + rows - 1]}, "log": {"0": [0, 9], "1": [0, 9]}}
            ),
            committed_at=minutes(at),
        )
