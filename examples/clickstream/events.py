"""The JSON of the example's input: what the loader and the generator both write and the transform reads.

Every event has `event_type`, `session_key`, `at` (event time, ISO 8601 in UTC) and `event_id` (unique within its session).
A `start_event` says who came (`user`, `platform`, `channel`, `lifecycle`), an `entry_event` what was clicked (`page`, and
where known `product` and `price_cents`), an `end_event` nothing more.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import orjson

from examples.clickstream.dataset import Click

START = "start_event"
ENTRY = "entry_event"
END = "end_event"


Record = tuple[bytes, bytes, int]
"""A Kafka record to be: its key (the session key), its JSON, and its event time in milliseconds since 1970."""


def from_clicks(clicks: list[Click], rebase_to: datetime | None = None) -> Iterator[Record]:
    """Wrap each session of time-ordered clicks in a start and an end; yields in time order.

    The start has its first click's time and comes just before it, the end its last click's and comes just after.
    `rebase_to` moves all event times by one amount, so that the first is that time.
    """
    clicks_left: dict[str, int] = {}
    for click in clicks:
        clicks_left[click.session] = clicks_left.get(click.session, 0) + 1
    total = dict(clicks_left)
    shift = rebase_to - clicks[0].at if rebase_to and clicks else timedelta()
    for click in clicks:
        at = click.at + shift
        number = total[click.session] - clicks_left[click.session]
        if number == 0:
            about = {
                "user": click.user,
                "platform": click.platform,
                "channel": click.channel,
                "lifecycle": click.lifecycle,
            }
            yield encode(click.session, START, at, "start", about)
        yield encode(click.session, ENTRY, at, str(number), {"page": click.page})
        clicks_left[click.session] -= 1
        if clicks_left[click.session] == 0:
            yield encode(click.session, END, at, "end", {})


def encode(key: str, event_type: str, at: datetime, event_id: str, fields: dict[str, str]) -> Record:
    """One event as a record. `at` must be in UTC."""
    stamp = at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    body = {"event_type": event_type, "session_key": key, "at": stamp, "event_id": event_id}
    return key.encode(), orjson.dumps(body | fields), round(at.timestamp() * 1000)
