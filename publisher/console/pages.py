"""The pages and their queries. Each page runs a few bounded queries, most pages in one snapshot (`read_page`)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from db.connection import snapshot
from db.statements import queries
from publisher.console.alerts.observed import NotReady
from publisher.console.alerts.page import read_alerts, without_postgres
from publisher.console.consumers import Consumers
from publisher.console.flow import read_flow
from publisher.console.reader import Connection, PageData, read
from publisher.console.rendering.masking import shown_detail, shown_traceback
from publisher.console.rendering.schemas import MOST_VALUE_BYTES, ShownValues
from publisher.console.search import search
from publisher.console.story import add_consumed, add_positions, read_story
from publisher.outbox.erased import erased_of_key
from publisher.outbox.ledger import newest_batch
from publisher.retention.survey import survey
from publisher.status.publisher_status import read_lanes
from service.commands.times import shown_time
from service.settings import Settings

_DELIVERY = queries("publisher.console", "delivery")
_LEDGER = queries("publisher.console", "ledger")

ROWS = 50
_LAST = 2**62
_COUNT_LIMIT = 10_000
_CHECKED_BATCHES = 200
_COUNTED_BATCHES = 5_000
_LATENCY_ROWS = 2_000
_EVENTS_SHOWN = 200


class NotThereError(Exception):
    """The outbox does not have the object that the page is about."""


class WrongAddressError(Exception):
    """A parameter of the address has a value that the page does not accept."""


@dataclass(frozen=True, slots=True)
class PageRequest:
    """The input of a page. `values`: the parameters of the address; `shown`: shows the values of records."""

    connection: Connection
    settings: Settings
    values: Mapping[str, str]
    not_ready: NotReady
    shown: ShownValues
    consumers: Consumers

    @property
    def show(self) -> bool:
        """Whether values are shown."""
        return self.shown.show

    def text(self, name: str, otherwise: str = "") -> str:
        """Return a parameter as text."""
        return self.values.get(name, otherwise)

    def number(self, name: str, otherwise: int) -> int:
        """Return a parameter as a natural number. Raises WrongAddressError."""
        text = self.values.get(name)
        if text is None or text == "":
            return otherwise
        if not (text.isascii() and text.isdigit() and len(text) < 19):
            raise WrongAddressError(f"{name}={text!r} is no number")
        return int(text)


class ConsolePage(NamedTuple):
    """A page. `live`: it follows the outbox while it is open. `waits_for_others`: it waits for Kafka or a registry, so it holds no
    snapshot. `without_postgres`: its content while Postgres does not answer.
    """

    path: str
    template: str
    read: Callable[[PageRequest], PageData]
    live: bool = False
    waits_for_others: bool = False
    without_postgres: Callable[[str], PageData] | None = None


def _flow(request: PageRequest) -> PageData:
    return read_flow(request.connection, request.settings, request.not_ready) | {
        "time": request.settings.session.time
    }


def _alerts(request: PageRequest) -> PageData:
    return read_alerts(request.connection, request.settings, request.not_ready)


def _lanes(request: PageRequest) -> PageData:
    return {"lanes": read_lanes(request.connection, _COUNT_LIMIT), "count_limit": _COUNT_LIMIT}


def _runs(request: PageRequest) -> PageData:
    before, generation = request.number("before", _LAST), request.number("generation", 2**31 - 1)
    runs = read(request.connection, _LEDGER["runs"], before=before, rows=ROWS)
    generations = read(
        request.connection, _LEDGER["generations"], before=min(generation, 2**31 - 1), rows=ROWS
    )
    restores = read(request.connection, _LEDGER["last_restore"], batches=_COUNTED_BATCHES)
    return {
        "restore": restores[0] if restores else None,
        "counted_batches": _COUNTED_BATCHES,
        "runs": runs,
        "generations": generations,
        "savepoints": read(request.connection, _LEDGER["savepoints"], rows=ROWS),
        "assembly": read(request.connection, _LEDGER["assembly"]),
        "next": runs[-1]["number"] if len(runs) == ROWS else None,
        "next_generation": generations[-1]["generation"] if len(generations) == ROWS else None,
    }


def _batches(request: PageRequest) -> PageData:
    rows = read(request.connection, _LEDGER["batches"], before=request.number("before", _LAST), rows=ROWS)
    return {"batches": rows, "next": rows[-1]["batch_id"] if len(rows) == ROWS else None}


def _batch(request: PageRequest) -> PageData:
    batch_id = request.number("id", 0)
    found = read(request.connection, _LEDGER["batch"], batch_id=batch_id)
    if not found:
        raise NotThereError(f"The ledger has no batch {batch_id}.")
    lane = request.number("lane", 0)
    after = request.text("after")
    rows = read(
        request.connection, _LEDGER["batch_sessions"], batch_id=batch_id, lane=lane, after=after, rows=ROWS
    )
    return {
        "batch": found[0],
        "open_after": read(request.connection, _LEDGER["open_after"], batch_id=batch_id)[0],
        "latency": read(request.connection, _LEDGER["batch_latency"], batch_id=batch_id, rows=_LATENCY_ROWS)[
            0
        ],
        "latency_rows": _LATENCY_ROWS,
        "time": request.settings.session.time,
        "sessions": rows,
        "next": (rows[-1]["lane"], rows[-1]["session_key"]) if len(rows) == ROWS else None,
    }


def _deliveries(request: PageRequest) -> PageData:
    if "lane" in request.values:
        epoch, lane = request.number("epoch", 1), request.number("lane", 0)
        rows = read(
            request.connection,
            _DELIVERY["of_lane"],
            epoch=min(epoch, 2**31 - 1),
            lane=min(lane, 2**31 - 1),
            seq=request.number("before", _LAST),
            rows=ROWS,
        )
        older = f"epoch={epoch}&lane={lane}&before={rows[-1]['seq']}" if len(rows) == ROWS else None
        return {"deliveries": rows, "next": older, "of": (epoch, lane)}
    at, epoch, lane, seq = _parsed_before(request.text("before"))
    rows = read(
        request.connection, _DELIVERY["deliveries"], at=at, epoch=epoch, lane=lane, seq=seq, rows=ROWS
    )
    older = None
    if len(rows) == ROWS:
        last = rows[-1]
        stamp = shown_time(last["committed_at"])
        older = f"before={stamp}~{last['epoch']}~{last['lane']}~{last['seq']}"
    return {"deliveries": rows, "next": older, "of": None}


def _parsed_before(text: str) -> tuple[str, int, int, int]:
    """Parse the delivery at which the previous page of deliveries ended."""
    if not text:
        return "infinity", 0, 0, 0
    try:
        at, epoch, lane, seq = text.split("~")
        return datetime.fromisoformat(at).isoformat(), int(epoch), int(lane), int(seq)
    except ValueError:
        raise WrongAddressError(f"before={text!r} is no place in the list") from None


def _replays(request: PageRequest) -> PageData:
    rows = read(request.connection, _DELIVERY["replays"], before=request.number("before", _LAST), rows=ROWS)
    return {"replays": rows, "next": rows[-1]["replay_id"] if len(rows) == ROWS else None}


def _operations(request: PageRequest) -> PageData:
    rows = read(
        request.connection, _DELIVERY["operations"], before=request.number("before", _LAST), rows=ROWS
    )
    return {"operations": rows, "next": rows[-1]["operation_id"] if len(rows) == ROWS else None}


def _parked(request: PageRequest) -> PageData:
    state = request.text("state", "parked")
    batch_id, key = request.number("batch", _LAST), request.text("key")
    rows = read(request.connection, _DELIVERY["parked"], state=state, batch_id=batch_id, key=key, rows=ROWS)
    for row in rows:
        row["detail"] = shown_detail(row["detail"], "parked", show=request.show)
    older = (rows[-1]["batch_id"], rows[-1]["session_key"]) if len(rows) == ROWS else None
    return {"parked": rows, "state": state, "next": older}


def _letters(request: PageRequest) -> PageData:
    reason = request.text("reason")
    before = request.number("before", _LAST)
    reasons = read(request.connection, _DELIVERY["reasons"], count_limit=_COUNT_LIMIT)
    if reason:
        at = request.text("at", "infinity")
        if at != "infinity":
            at, *_ = _parsed_before(f"{at}~0~0~0")
        rows = read(
            request.connection, _DELIVERY["letters_of_reason"], reason=reason, at=at, before=before, rows=ROWS
        )
    else:
        rows = read(request.connection, _DELIVERY["letters"], before=before, rows=ROWS)
    for row in rows:
        row["detail"] = shown_detail(row["detail"], row["reason"], show=request.show)
    for row in reasons:
        row["detail"] = shown_detail(row["detail"] or "", row["reason"], show=request.show)
    older = None
    if len(rows) == ROWS:
        older = f"before={rows[-1]['dead_letter_id']}"
        if reason:
            stamp = shown_time(rows[-1]["created_at"])
            older += f"&reason={reason}&at={stamp}"
    return {"letters": rows, "reasons": reasons, "reason": reason, "next": older, "limit": _COUNT_LIMIT}


def _letter(request: PageRequest) -> PageData:
    number = request.number("id", 0)
    found = read(
        request.connection,
        _DELIVERY["letter"],
        dead_letter_id=number,
        rows=_EVENTS_SHOWN,
        bytes=MOST_VALUE_BYTES,
    )
    if not found:
        raise NotThereError(f"There is no dead letter {number}.")
    letter = found[0]
    kinds = letter["event_types"] or [None] * len(letter["event_offsets"])
    columns = ("event_offsets", "event_times_ms", "event_values", "event_bytes")
    events = zip(kinds, *(letter[name] for name in columns), strict=True)
    return {
        "letter": letter,
        "detail": shown_detail(letter["detail"], letter["reason"], show=request.show),
        "traceback": shown_traceback(letter["detail"], show=request.show),
        "events": [
            {
                "offset": offset,
                "ms": ms,
                "type": kind if request.show else kind and "hidden",
                "value": request.shown.of(value, size),
            }
            for kind, offset, ms, value, size in events
        ],
    }


def _storage(request: PageRequest) -> PageData:
    found = survey(request.connection, request.settings.retention)
    with snapshot(request.connection):
        sizes = read(request.connection, _DELIVERY["sizes"])
        total = request.connection.execute(_DELIVERY["database_size"]).fetchone()
    return {
        "survey": found,
        "per_day": found.growth.per_day(found.growth.bytes),
        "sizes": sizes,
        "total": None if total is None else total[0],
        "retention": request.settings.retention,
    }


def _checks(request: PageRequest) -> PageData:
    last = newest_batch(request.connection)
    first = max(1, last - _CHECKED_BATCHES + 1)
    rows = read(request.connection, _LEDGER["findings"], from_batch=first, to_batch=last, rows=200)
    return {"checks": rows, "batches": _CHECKED_BATCHES}


def _search(request: PageRequest) -> PageData:
    return {"outcome": search(request.connection, request.settings.kafka, request.text("q")[:2_000])}


def _session(request: PageRequest) -> PageData:
    key = request.text("key")
    if "\0" in key:
        raise WrongAddressError("a session key has no NUL")
    story = read_story(request.connection, key, request.number("before", _LAST), request.shown)
    if not story["sessions"] and not story["letters"] and not story["parked"]:
        if erased := erased_of_key(request.connection, key):
            at = max(each.erased_at for each in erased)
            raise NotThereError(f"The sessions of this key were erased, the last of them at {at:%F %T}.")
        raise NotThereError(f"The outbox has neither a session nor a dead letter with the key {key!r}.")
    story["kafka"] = None
    if request.text("kafka"):
        add_positions(request.settings.kafka, story)
    add_consumed(request.consumers, story, show=request.show)
    return story


PAGES = (
    ConsolePage("/", "flow.html", _flow, live=True),
    ConsolePage("/alerts", "alerts.html", _alerts, without_postgres=without_postgres),
    ConsolePage("/lanes", "lanes.html", _lanes, live=True),
    ConsolePage("/runs", "runs.html", _runs),
    ConsolePage("/batches", "batches.html", _batches, live=True),
    ConsolePage("/batch", "batch.html", _batch),
    ConsolePage("/deliveries", "deliveries.html", _deliveries, live=True),
    ConsolePage("/replays", "replays.html", _replays, live=True),
    ConsolePage("/operations", "operations.html", _operations),
    ConsolePage("/parked", "parked.html", _parked),
    ConsolePage("/letters", "letters.html", _letters),
    ConsolePage("/letter", "letter.html", _letter, waits_for_others=True),
    ConsolePage("/storage", "storage.html", _storage),
    ConsolePage("/checks", "checks.html", _checks),
    ConsolePage("/search", "search.html", _search, waits_for_others=True),
    ConsolePage("/session", "session.html", _session, waits_for_others=True),
)


def read_page(page: ConsolePage, request: PageRequest) -> PageData:
    """Read a page, in one snapshot unless the page waits for others or makes its own. Raises psycopg.Error, NotThereError,
    WrongAddressError."""
    if page.waits_for_others or page.read is _storage:
        return page.read(request)
    with snapshot(request.connection):
        return page.read(request)
