"""Sessions per second of `assemble` for clean input, beside a plain loop over the events in the same run.

    python -m benchmarks.assemble [--sessions 6000] [--partitions 4] [--calls 5] [--span-s 2]

Each call gets whole sessions of 102 events of about 150 bytes, interleaved in each partition; the first call is warm-up.
CPU seconds, one thread. The last line is one JSON object.
"""

import argparse
import random
import time
from collections.abc import Callable
from typing import Any

import orjson
import pyarrow as pa

from spark_job.sessions.assembler import assemble
from spark_job.sessions.session import to_session
from spark_job.sessions.settings import AssemblySettings
from spark_job.sessions.state.open_state import OpenState

ENTRIES = 100


def make_call(rng: random.Random, call: int, sessions: int, partitions: int, span_ms: int) -> list[pa.Table]:
    """One table per partition: events of many sessions interleaved in time."""
    tables = []
    for partition in range(partitions):
        begun = [rng.randrange(span_ms) for _ in range(sessions // partitions)]
        events = sorted(
            (begun[number] + position * 15, number, position)
            for number in range(len(begun))
            for position in range(ENTRIES + 2)
        )
        values, offsets, times = [], [], []
        base = call * 10 * span_ms
        for offset, (at, number, position) in enumerate(events):
            name = (
                "start_event" if position == 0 else "end_event" if position == ENTRIES + 1 else "entry_event"
            )
            key = f"session-{call:04d}-{partition:02d}-{number:06d}"
            body = {
                "event_type": name,
                "session_key": key,
                "seq": position,
                "page": f"/shop/item/{number}",
                "ms": at,
            }
            values.append(orjson.dumps(body | {"pad": "x" * 30}))
            offsets.append(call * 10_000_000 + offset)
            times.append(base + at)
        tables.append(
            pa.table(
                {
                    "offset": pa.array(offsets, pa.int64()),
                    "ts": pa.array(times, pa.int64()),
                    "value": pa.array(values, pa.binary()),
                }
            )
        )
    return tables


def plain_loop(table: pa.Table, _settings: AssemblySettings) -> int:
    """The baseline: decode each event, walk. None of the checks, no dead letters, no state."""
    sessions: dict[str, list[tuple[int, bytes]]] = {}
    closed = 0
    for offset, value in zip(*(table.column(name).to_pylist() for name in ("offset", "value")), strict=True):
        document: dict[str, Any] = orjson.loads(value)
        key = document["session_key"]
        if document["event_type"] == "start_event":
            sessions[key] = []
        if (session := sessions.get(key)) is not None:
            session.append((offset, value))
            if document["event_type"] == "end_event":
                closed += 1
                del sessions[key]
    return closed


def only_assemble(table: pa.Table, settings: AssemblySettings) -> int:
    """What a task calls."""
    return len(assemble(OpenState.empty(), table, settings).closed)


def with_events(table: pa.Table, settings: AssemblySettings) -> int:
    """The same, and every event made as a transform would see it (its value not decoded)."""
    closed = assemble(OpenState.empty(), table, settings).closed
    for session in closed:
        for event in to_session(session, "topic", 0).events:
            event.raw  # noqa: B018
    return len(closed)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=6000)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--calls", type=int, default=5)
    parser.add_argument(
        "--span-s", type=float, default=2.0, help="the time over which a call's sessions begin"
    )
    arguments = parser.parse_args()
    settings = AssemblySettings()
    rng = random.Random(1)
    ways: dict[str, Callable[[pa.Table, AssemblySettings], int]] = {
        "plain_loop": plain_loop,
        "assemble": only_assemble,
        "assemble_and_make_events": with_events,
    }
    spent = dict.fromkeys(ways, 0.0)
    done = dict.fromkeys(ways, 0)
    n_bytes = n_events = 0
    for call in range(arguments.calls + 1):
        tables = make_call(rng, call, arguments.sessions, arguments.partitions, int(arguments.span_s * 1000))
        for name, way in ways.items():
            begun = time.process_time()
            sessions = sum(way(table, settings) for table in tables)
            if call:
                spent[name] += time.process_time() - begun
                done[name] += sessions
        n_bytes += sum(table.column("value").nbytes for table in tables)
        n_events += sum(table.num_rows for table in tables)
    events = ENTRIES + 2
    report = {
        "benchmark": "assemble",
        "sessions_per_call": arguments.sessions,
        "partitions": arguments.partitions,
        "calls": arguments.calls,
        "span_s": arguments.span_s,
        "mean_event_bytes": round(n_bytes / n_events),
        **{f"{name}_sessions_per_cpu_s": round(done[name] / spent[name]) for name in ways},
        **{
            f"{name}_cpu_s_per_6m_events": round(6e6 * spent[name] / (done[name] * events), 2)
            for name in ways
        },
        "times_faster_than_loop": round(spent["plain_loop"] / spent["assemble"], 2),
    }
    print(orjson.dumps(report).decode())


if __name__ == "__main__":
    main()
