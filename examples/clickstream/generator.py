"""Sessions of the shape the product is built for: a start, 100 entries and an end within 1-2 s, thousands interleaved.

    python -m examples.clickstream.generator --sessions 10000 --sessions-per-second 500
    python -m examples.clickstream.generator --sessions 60000 --as-fast-as-possible      # preload a topic

`generate` is a pure function of its arguments, payload bytes included; benchmarks and tests use it without Kafka.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Annotated

import numpy as np
import typer
from rich.console import Console

from examples.clickstream.anomalies import Anomalies, Rows
from examples.clickstream.events import Record
from examples.clickstream.payload import (
    END_TAIL,
    START_TAIL,
    VARIANTS,
    Heads,
    entry_tail,
    heads,
    orphan_key,
    tails,
)
from examples.clickstream.producer import ProduceError, TopicWriter, paced
from examples.clickstream.topics import CONFIG, LOAD, Config
from service.commands.progress import progress_bar
from service.errors import SettingsError
from service.settings import load_settings

screen = Console(stderr=True)
Share = Annotated[float, typer.Option(min=0, max=1, help="Share of the sessions with this anomaly.")]

_SESSIONS_PER_BLOCK = 1_000
_BLOCK_S = 0.1
"""A block is at least so much of the sessions' time: each block sorts the open sessions' events anew."""
_MIN_MS, _MAX_MS = 1_000, 2_000
MEAN_S = (_MIN_MS + _MAX_MS) / 2_000
"""How long a session lasts on average: at a rate r, r × MEAN_S sessions are open."""


@dataclass(frozen=True)
class Shape:
    """What to generate. The times are event times; nothing here waits."""

    sessions: int
    sessions_per_second: float = 100.0
    entries: int = 100
    bytes_per_event: int = 150
    seed: int = 1
    start_ms: int = 1_767_225_600_000
    """Event time of the first start, milliseconds since 1970 (2026-01-01). A producer that takes the record's timestamp
    from it should give the present time: Kafka's retention goes by the timestamp, and deletes what looks a week old."""
    key_prefix: str = "s-"

    def __post_init__(self) -> None:
        """Raises ValueError for numbers that make no sense."""
        if self.sessions < 0 or self.entries < 1 or self.sessions_per_second <= 0:
            raise ValueError(f"{self}: sessions >= 0, entries >= 1 and sessions_per_second > 0 are needed")


def generate(shape: Shape, anomalies: Anomalies | None = None) -> Iterator[Record]:
    """Yield the events of all sessions in time order. Without anomalies there are sessions x (entries + 2) of them."""
    return chain.from_iterable(generate_blocks(shape, anomalies))


def generate_blocks(shape: Shape, anomalies: Anomalies | None = None) -> Iterator[list[Record]]:
    """Yield the same events in long lists, which costs less for each event."""
    random = np.random.default_rng(shape.seed)
    # A generator of its own, so that an anomaly changes nothing but what it is about.
    accidents = np.random.default_rng([shape.seed, 1])
    width = max(8, len(str(shape.sessions)))
    prefix = shape.key_prefix.encode()
    all_tails = tails(shape.entries, len(prefix) + width, shape.bytes_per_event, random)
    pending: Rows | None = None
    block = max(_SESSIONS_PER_BLOCK, int(shape.sessions_per_second * _BLOCK_S))
    for first in range(0, shape.sessions, block):
        after = min(first + block, shape.sessions)
        rows = _sessions(shape, first, after, random)
        if anomalies is not None:
            rows = anomalies.apply(rows, shape.entries + 2, accidents)
        rows = rows if pending is None else pending.plus(rows)
        rows = rows.where(np.argsort(rows.at, kind="stable"))
        # The next block's sessions come in between from their first start on: later events have to wait for them.
        ready = len(rows.at)
        if after < shape.sessions:
            ready = int(np.searchsorted(rows.at, _start_ms(shape, after)))
        yield _encode(rows.where(np.arange(ready)), prefix, width, all_tails)
        pending = rows.where(np.arange(ready, len(rows.at)))


def _encode(rows: Rows, prefix: bytes, width: int, all_tails: list[bytes]) -> list[Record]:
    """The rows as records: table look-ups and two joins of bytes for each event, which is what makes it fast."""
    if not len(rows.at):
        return []
    lowest = int(rows.session.min())
    own = [prefix + b"%0*d" % (width, n) for n in range(lowest, int(rows.session.max()) + 1)]
    all_heads = list(chain.from_iterable(heads(key) for key in own))
    all_keys = list(chain.from_iterable((key, orphan_key(key)) for key in own))
    relative = rows.session - lowest
    times, time_of = np.unique(rows.at, return_inverse=True)
    stamps = (
        np.datetime_as_string(times.astype("datetime64[ms]"), unit="ms", timezone="UTC")
        .astype("S24")
        .tolist()
    )
    head_of = (relative * len(Heads) + rows.head).tolist()
    key_of = (relative * 2 + (rows.head == Heads.ORPHAN)).tolist()
    values = [
        all_heads[head] + stamps[time] + all_tails[tail]
        for head, time, tail in zip(head_of, time_of.tolist(), rows.tail.tolist(), strict=True)
    ]
    return list(zip([all_keys[key] for key in key_of], values, rows.at.tolist(), strict=True))


def _start_ms(shape: Shape, session: int) -> int:
    return shape.start_ms + int(session * 1000 / shape.sessions_per_second)


def _sessions(shape: Shape, first: int, after: int, random: np.random.Generator) -> Rows:
    """Sessions `first` to `after` - 1 without anomalies, one after the other, each in time order."""
    count = after - first
    per_session = shape.entries + 2
    starts = np.array([_start_ms(shape, n) for n in range(first, after)], dtype=np.int64)
    spans = random.integers(_MIN_MS, _MAX_MS, count, endpoint=True)
    offsets = np.zeros((count, per_session), dtype=np.int64)
    offsets[:, 1:-1] = np.sort(random.random((count, shape.entries)), axis=1) * spans[:, None]
    offsets[:, -1] = spans
    head = np.full((count, per_session), Heads.ENTRY, dtype=np.int64)
    head[:, 0], head[:, -1] = Heads.START, Heads.END
    variants = random.integers(0, VARIANTS, (count, shape.entries))
    tail = np.empty((count, per_session), dtype=np.int64)
    tail[:, 0], tail[:, -1] = START_TAIL, END_TAIL
    tail[:, 1:-1] = entry_tail(0, 0) + np.arange(shape.entries) * VARIANTS + variants
    return Rows(
        at=(starts[:, None] + offsets).ravel(),
        session=np.repeat(np.arange(first, after), per_session),
        head=head.ravel(),
        tail=tail.ravel(),
    )


def main(
    sessions: Annotated[int, typer.Option(min=0, help="How many.")] = 10_000,
    sessions_per_second: Annotated[
        float, typer.Option(min=0.001, help="Starts a second of event time.")
    ] = 100,
    as_fast_as_possible: Annotated[
        bool, typer.Option("--as-fast-as-possible", help="Do not wait for event time: preload the topic.")
    ] = False,
    seed: Annotated[int, typer.Option(help="The same seed makes the same bytes at the same start.")] = 1,
    bytes_per_event: Annotated[int, typer.Option(min=1, help="About how long a value is.")] = 150,
    topic: Annotated[str, typer.Option(help="Topic to write to.")] = LOAD,
    start_ms: Annotated[int, typer.Option(help="Event time of the first start, epoch ms; 0: now.")] = 0,
    key_prefix: Annotated[str, typer.Option(help="Start of every session key.")] = "s-",
    duplicates: Share = 0.0,
    orphans: Share = 0.0,
    restarts: Share = 0.0,
    malformed: Share = 0.0,
    missing_ends: Share = 0.0,
    pageless: Share = 0.0,
    config: Config = CONFIG,
) -> None:
    """Generate sessions of 102 events into a Kafka topic; shares from 0 to 1 add anomalies."""
    shape = Shape(
        sessions=sessions,
        sessions_per_second=sessions_per_second,
        bytes_per_event=bytes_per_event,
        seed=seed,
        start_ms=start_ms or int(time.time() * 1000),
        key_prefix=key_prefix,
    )
    anomalies = Anomalies(duplicates, orphans, restarts, malformed, missing_ends, pageless)
    began, events = time.monotonic(), 0
    try:
        with (
            TopicWriter(load_settings(config).kafka, topic) as writer,
            progress_bar() as bar,
        ):
            task = bar.add_task(f"events to {topic}", total=sessions * (shape.entries + 2))
            blocks = generate_blocks(shape, anomalies)
            for group in blocks if as_fast_as_possible else paced(chain.from_iterable(blocks), 1):
                writer.write(group)
                events += len(group)
                bar.update(task, completed=events)
    except (ProduceError, SettingsError) as error:
        screen.print(f"generator: {error}", style="red", markup=False)
        raise typer.Exit(2) from None
    rate = events / (time.monotonic() - began)
    print(f"generator: topic={topic} events={events} sessions={sessions} events_per_second={rate:.0f}")


if __name__ == "__main__":
    typer.run(main)
