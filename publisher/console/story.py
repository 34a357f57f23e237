"""Reads a session key's story: its newest sessions, their outputs and where each was sent, replays, parked rows, letters."""

from collections.abc import Collection
from functools import partial
from typing import Any, LiteralString

from psycopg.rows import DictRow

from db import windows
from db.statements import queries
from publisher.console.consumers import Consumers
from publisher.console.reader import Connection, PageData, read
from publisher.console.rendering.masking import shown_detail, shown_headers, shown_key, shown_reason
from publisher.console.rendering.schemas import MOST_VALUE_BYTES, ShownValue, ShownValues
from publisher.outbox.permitted import permitted
from publisher.outbox.sent_offsets import MalformedOffsetsError
from publisher.trace.consumers import Consumption, described
from publisher.trace.outputs import Output, OutputKey, found_in_kafka, must_be_in_kafka, outputs_of_key
from publisher.trace.records import Copy
from service.errors import OutboxError
from service.settings import KafkaSettings

_STORY = queries("publisher.console", "story")

SESSIONS, ROWS = 20, 200
_KAFKA_TIMEOUT_S = 5
_MOST_RECORDS = 500_000


def read_story(connection: Connection, key: str, before: int, shown: ShownValues) -> PageData:
    """Return the data of the page of a session key: its newest sessions, in batches before `before`. Raises psycopg.Error."""
    show = shown.show
    sessions: list[DictRow] = []
    for window in reversed(windows.kept(connection, last=before - 1)):
        newest = window._replace(last=min(window.last, before - 1))
        left = SESSIONS + 1 - len(sessions)
        sessions += read(connection, _STORY["sessions"], key=key, **newest.bounds, rows=left)
        if len(sessions) > SESSIONS:
            break
    more = sessions[SESSIONS:]
    sessions = sessions[:SESSIONS]
    batch_ids = sorted({each["batch_id"] for each in sessions})
    outputs = outputs_of_key(connection, key, batch_ids=batch_ids, most=ROWS)
    values: list[DictRow] = []
    for window in windows.holding(connection, batch_ids):
        most = {"rows": ROWS - len(values), "bytes": MOST_VALUE_BYTES}
        values += read(connection, _STORY["values"], key=key, batch_ids=batch_ids, **window.bounds, **most)
    by_output = {(each["batch_id"], each["outbox_id"], each["revision"]): each for each in values}
    letters = permitted(connection, lambda: read(connection, _STORY["letters"], key=key, rows=ROWS), None)
    parked = read(connection, _STORY["parked"], key=key, rows=ROWS)
    known = {*batch_ids, *(each["batch_id"] for each in [*parked, *(letters or [])])}
    return {
        "key": key,
        "sessions": sessions,
        "next": sessions[-1]["batch_id"] if more else None,
        "outputs": [_output(each, by_output, key, shown) for each in outputs],
        "outputs_cut": len(outputs) == ROWS,
        "found": outputs,
        "history": _history(connection, key, known, show=show),
        "letters": None if letters is None else [_letter(each, show=show) for each in letters],
        "parked": [each | {"detail": shown_detail(each["detail"], "parked", show=show)} for each in parked],
        "replays": _in_windows(connection, _STORY["replays"], key, batch_ids) or [],
    }


def _in_windows(
    connection: Connection, query: LiteralString, key: str, batch_ids: Collection[int]
) -> list[DictRow] | None:
    """Return what a query finds for a key in the windows of these batches, newest window first; None if the login may not read it."""
    found: list[DictRow] = []
    for window in reversed(windows.holding(connection, batch_ids)):
        ask = partial(read, connection, query, key=key, **window.bounds, rows=ROWS)
        rows = permitted(connection, ask, None)
        if rows is None:
            return None
        found += rows
        if len(found) >= ROWS:
            break
    return found[:ROWS]


def _history(
    connection: Connection, key: str, batch_ids: Collection[int], *, show: bool
) -> list[DictRow] | None:
    rows = _in_windows(connection, _STORY["history"], key, batch_ids)
    if rows is None:
        return None
    rows.sort(key=lambda row: row["at"], reverse=True)
    for row in rows:
        # Only these two kinds may quote an event, after the reason, which is our own text.
        if row["what"] in ("dead-lettered", "parked"):
            row["detail"] = _quoting(row["detail"], show=show)
    return rows


def _quoting(detail: str, *, show: bool) -> str:
    said, separator, quoted = detail.partition(": ")
    reason = "transform_failed" if said.startswith("transform_failed") else "other"
    return f"{said}{separator}{shown_detail(quoted, reason, show=show)}" if separator else said


def _letter(row: DictRow, *, show: bool) -> DictRow:
    return row | {"detail": shown_detail(row["detail"], row["reason"], show=show)}


def _output(
    output: Output, values: dict[tuple[int, str, int], DictRow], key: str, values_shown: ShownValues
) -> dict[str, Any]:
    carried = values.get((output.batch_id, *output.identity))
    shown = output._asdict() | {
        "positions": None,
        "consumed": [],
        "key": "",
        "value": ShownValue(""),
        "headers": "",
        "identity": output.identity,
    }
    if carried is not None:
        shown |= {
            "key": shown_key(carried["key"], key, show=values_shown.show, size=carried["key_bytes"]),
            "value": values_shown.of(carried["value"], carried["value_bytes"]),
            "headers": shown_headers(carried["headers"], show=values_shown.show),
        }
    return shown


def add_positions(kafka: KafkaSettings, story: PageData) -> None:
    """Add the position of each output in Kafka, searched between its delivery's offsets, or why Kafka could not be read."""
    outputs: list[Output] = story["found"]
    try:
        spans = {
            (each.topic, partition, first, last)
            for each in outputs
            for partition, (first, last) in each.ranges().items()
        }
    except MalformedOffsetsError as error:
        story["kafka"] = str(error)
        return
    records = sum(last - first + 1 for _, _, first, last in spans)
    if records > _MOST_RECORDS:
        story["kafka"] = (
            f"{records:,} records would have to be read, too many for a page: use `publisher trace`"
        )
        return
    try:
        found = found_in_kafka(
            kafka.model_copy(update={"request_timeout_s": min(_KAFKA_TIMEOUT_S, kafka.request_timeout_s)}),
            outputs,
        )
    except OutboxError as error:
        story["kafka"] = str(error)
        return
    story["kafka"] = f"read {records:,} records"
    for shown, output in zip(story["outputs"], outputs, strict=True):
        shown["positions"] = _positions(output, found)


def add_consumed(consumers: Consumers, story: PageData, *, show: bool) -> None:
    """Add the state of each output at the consumers, or why their database was not read. Adds nothing if the settings name no database."""
    outputs: list[Output] = story["found"]
    story["consumers"] = None
    if not consumers.are_shown or not outputs:
        return
    try:
        found = consumers.of({each.outbox_id for each in outputs})
    except OutboxError as error:
        # Only the first line, because libpq's explanation follows.
        story["consumers"] = str(error).partition("\n")[0].rstrip(".")
        return
    story["consumers"] = ""
    for shown, output in zip(story["outputs"], outputs, strict=True):
        rows = [_masked(each, show=show) for each in found.get(output.outbox_id, [])]
        shown["consumed"] = described(rows, output.revision)


def _masked(consumption: Consumption, *, show: bool) -> Consumption:
    row = consumption.row
    if row.set_aside is None:
        return consumption
    return consumption._replace(row=row._replace(set_aside=shown_reason(row.set_aside, show=show)))


def _positions(output: Output, found: dict[OutputKey, list[Copy]]) -> str:
    copies = found.get(output.identity, [])
    if copies:
        return ", ".join(
            f"{copy.topic}/{copy.partition}/{copy.offset}"
            + ("" if copy.replay is None else f" (replay {copy.replay})")
            for copy in copies
        )
    if must_be_in_kafka(output, scan=False):
        return "not in Kafka (any more)"
    return "offsets are not recorded" if output.state == "delivered" else ""
