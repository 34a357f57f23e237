"""What a replay costs live publishing: latency of live events without one, beside one at full speed, and beside one with a rate.

    python -m benchmarks.replay [--rows 80000] [--seconds 10] [--rounds 2] [--rate 10000]

An outbox with `rows` delivered rows of 20 events of 178 bytes gets a small live batch (10 rows) every 50 ms. Latency is the time
from a batch's COMMIT to a read_committed consumer of each row's last event. The replay writes to the same topic unless the phase
says otherwise. All phases take turns in one run, beside the same publisher. Run it alone on the machine, with rows enough that the
replay outlasts a phase.
"""

import statistics
import time
from pathlib import Path
from typing import Annotated

import psycopg
import typer
from confluent_kafka import OFFSET_END

from benchmarks.support.arrivals import Arrivals
from benchmarks.support.outbox import EVENTS, SyntheticOutbox, synthetic_outbox
from benchmarks.support.rounds import screen
from benchmarks.support.servers import publisher_process, started_servers
from service.settings import PublisherSettings

LANES = 4
LIVE_ROWS = 10
LIVE_EVERY_S = 0.05
SETTLE_S = 2.0
DELIVERED = "SELECT coalesce(sum(events), 0)::bigint FROM outbox.lane"
SENT = "SELECT coalesce(sum(events_sent), 0)::bigint FROM outbox.replay"


def write_live(outbox: SyntheticOutbox, seconds: float) -> dict[int, float]:
    """Commit live batches for a while; return {number of a session: when it was committed (time.perf_counter)}."""
    committed: dict[int, float] = {}
    until = time.perf_counter() + seconds
    with outbox.connect() as connection:
        while (began := time.perf_counter()) < until:
            first = outbox.commit(connection, LIVE_ROWS)
            committed |= dict.fromkeys(range(first, first + LIVE_ROWS), time.perf_counter())
            time.sleep(max(0.0, LIVE_EVERY_S - (time.perf_counter() - began)))
    return committed


def beside_replay(
    outbox: SyntheticOutbox, log: Path, seconds: float, command: tuple[str, ...]
) -> tuple[dict[int, float], float]:
    """Do the same beside a replay; return also the events that this sent in a second."""
    before = _number(outbox, SENT)
    with publisher_process(outbox.settings, log, *command):
        while _number(outbox, SENT) == before:
            time.sleep(0.05)
        before, began = _number(outbox, SENT), time.perf_counter()
        committed = write_live(outbox, seconds)
        return committed, (_number(outbox, SENT) - before) / (time.perf_counter() - began)


def _number(outbox: SyntheticOutbox, sql: str) -> int:
    with psycopg.connect(outbox.dsn, autocommit=True) as connection:
        row = connection.execute(sql.encode()).fetchone()
    return int(row[0]) if row is not None else 0


def main(
    rows: Annotated[int, typer.Option(min=1, help="Delivered rows of 20 events.")] = 80_000,
    seconds: Annotated[float, typer.Option(min=1, help="Seconds of a phase.")] = 10.0,
    rounds: Annotated[int, typer.Option(min=1, help="How often all phases are measured.")] = 2,
    rate: Annotated[int, typer.Option(min=1, help="Events/s of the limited replay.")] = 10_000,
) -> None:
    """Measure, and print a table."""
    late: dict[str, list[float]] = {}
    sent: dict[str, list[float]] = {}
    with (
        started_servers() as servers,
        synthetic_outbox(servers.stack, LANES, PublisherSettings()) as outbox,
    ):
        log = servers.folder / "publisher.log"
        outbox.hide(rows).show()
        start = ("replay", "start", "--to-batch", str(outbox.batches), "--yes")
        phases = {
            "alone": (),
            "replay at full speed, same topic": start,
            "replay at full speed, another topic": (*start, "--to-topic", outbox.bare_topic),
            f"replay at {rate:,} events/s, same topic": (*start, "--rate", str(rate)),
        }
        with (
            publisher_process(outbox.settings, log),
            Arrivals(servers.bootstrap_servers, [outbox.topic], OFFSET_END, EVENTS) as arrivals,
        ):
            while _number(outbox, DELIVERED) < rows * EVENTS:
                time.sleep(0.2)
            write_live(outbox, SETTLE_S)
            for _ in range(rounds):
                for phase, command in phases.items():
                    if command:
                        committed, speed = beside_replay(outbox, log, seconds, command)
                        sent.setdefault(phase, []).append(speed)
                    else:
                        committed = write_live(outbox, seconds)
                    time.sleep(SETTLE_S)
                    came = {session: at for (_, session), at in arrivals.seen.items()}
                    found = [1_000 * (came[one] - at) for one, at in committed.items() if one in came]
                    late.setdefault(phase, []).extend(found)
                    screen.print(f"{phase}: {len(found)} of {len(committed)} live rows")
    print("| phase | live p50 | live p99 | the replay sent |\n| --- | --- | --- | --- |")
    for phase, found in late.items():
        p99 = statistics.quantiles(found, n=100)[98]
        speeds = f"{statistics.mean(sent[phase]):,.0f} events/s" if phase in sent else ""
        print(f"| {phase} | {statistics.median(found):.0f} ms | {p99:.0f} ms | {speeds} |")


if __name__ == "__main__":
    typer.run(main)
