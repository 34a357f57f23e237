"""What the publisher and Debezium's outbox event router deliver when they are killed at the same points of the same backlog.

    python -m benchmarks.relay_kills [--rows 60000] [--rounds 3] [--at 5,10,15,20,25] [--exactly-once]

A backlog waits. Whenever a `read_committed` consumer has got so many per cent of its events, the relay's process gets SIGKILL and is
started again at once. At the end another consumer reads the topic from its beginning and counts what is missing, there twice, out of order
in its key, or altered. *Back* is the time from the kill until the first consumer has an event that it never had and that the broker
appended after the new start; a kill after which there was none left is not counted. Each relay has sent some sessions before, so that
it has stored how far it is.
"""

import math
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from signal import SIGTERM
from typing import Annotated

import typer

from benchmarks.peers.debezium.connect import ConnectWorker, connect_worker
from benchmarks.peers.debezium.settings import ID_HEADER, Choice, debezium_choices
from benchmarks.peers.debezium.table import APPEND_TIME, LOGICAL, debezium_table
from benchmarks.peers.registry import OURS
from benchmarks.suite.options import Folder
from benchmarks.suite.results import RESULTS, Measured, measurement
from benchmarks.support.outbox import EVENTS, synthetic_outbox, wait_for_lanes
from benchmarks.support.reading import TallyReader, tally_reader
from benchmarks.support.rounds import announce
from benchmarks.support.servers import launch_publisher
from benchmarks.support.tally import Tally
from devstack.stack import Stack
from service.observability import logs
from service.settings import LogSettings, PublisherSettings

LABELS = {
    "missing": "events missing",
    "twice": "events twice",
    "out_of_order": "events out of order in their key",
    "strange": "events altered or never to be sent",
    "kills": "kills",
    "back_s": "kill -9 to the next new event, median, s",
    "back_max_s": "slowest, s",
}
WARM_UP = 500
STALLED_S = 180.0
# What a dead process has sent may still be on its way through the broker. No new one is as quick.
_ON_ITS_WAY_S = 0.2


@dataclass(frozen=True)
class Relay:
    """One that runs and has nothing to do, and its backlog."""

    topic: str
    header: str
    """Carries an event's id."""
    release: Callable[[], None]
    """Let it begin with the backlog."""
    kill: Callable[[], None]
    """SIGKILL."""
    start: Callable[[], None]
    """Start it again, as a supervisor would."""
    end: Callable[[], None]
    """Stop it as an operator would."""


@contextmanager
def publisher_relay(stack: Stack, rows: int, lanes: int, folder: Path) -> Iterator[Relay]:
    """A real `publisher run`, with its defaults."""
    with synthetic_outbox(stack, lanes, PublisherSettings(), APPEND_TIME) as outbox:
        running = [launch_publisher(outbox.settings, folder / f"{outbox.topic}.log")]
        try:
            wait_for_lanes(outbox, 1, 60)
            outbox.hide(WARM_UP).show()
            _wait_for_warm_up(stack, outbox.topic, "outbox-id")
            hidden = outbox.hide(rows)
            yield Relay(
                outbox.topic,
                "outbox-id",
                hidden.show,
                lambda: running[-1].kill(),
                lambda: running.append(launch_publisher(outbox.settings, folder / f"{outbox.topic}.log")),
                lambda: running[-1].terminate(SIGTERM, timeout_s=60),
            )
        finally:
            running[-1].kill()


@contextmanager
def debezium_relay(stack: Stack, rows: int, choice: Choice, folder: Path) -> Iterator[Relay]:
    """A Connect worker with Debezium's connector."""
    with (
        debezium_table(stack) as table,
        connect_worker(stack.kafka.bootstrap_servers, folder, table.topic, choice) as worker,
    ):
        worker.create_connector(table.dsn)
        table.insert(WARM_UP)
        _wait_for_warm_up(stack, table.topic, ID_HEADER)
        # A clean stop stores how far it is.
        worker.stop_connector()
        table.insert(rows)
        yield Relay(
            table.topic, ID_HEADER, worker.resume_connector, _killed(worker), worker.start, worker.end
        )


def _killed(worker: ConnectWorker) -> Callable[[], None]:
    def kill() -> None:
        worker.kill()

    return kill


def _wait_for_warm_up(stack: Stack, topic: str, header: str) -> None:
    with tally_reader(stack.kafka.bootstrap_servers, topic, header, Tally(0, WARM_UP)) as reader:
        if not reader.until(lambda: not reader.tally.missing, STALLED_S):
            raise SystemExit(f"{reader.tally.missing} events of the warm-up are missing in {topic}")


def measure_kills(stack: Stack, relay: Relay, rows: int, at: Sequence[int]) -> Measured:
    """Kill it at these percentages of its events, and count what its topic holds in the end."""
    bootstrap, tally = stack.kafka.bootstrap_servers, Tally(0, WARM_UP + rows, checks_content=False)
    back: list[float] = []
    with tally_reader(bootstrap, relay.topic, relay.header, tally) as reader:
        relay.release()
        for percent in at:
            due = EVENTS * (WARM_UP + rows * percent // 100)
            if not reader.until(_reached(tally, due), STALLED_S):
                break
            moment = time.time()
            relay.kill()
            relay.start()
            reader.watch_from = time.time() + _ON_ITS_WAY_S
            reader.next_new = None
            reader.until(_is_back(reader), STALLED_S)
            if reader.next_new is not None or tally.missing:
                back.append(math.inf if reader.next_new is None else reader.next_new - moment)
        reader.until(lambda: not tally.missing, STALLED_S)
        relay.end()
    with tally_reader(bootstrap, relay.topic, relay.header, Tally(0, WARM_UP + rows)) as reader:
        reader.to_the_end()
    found = reader.tally
    return {
        "missing": found.missing,
        "twice": found.duplicates,
        "out_of_order": found.out_of_order,
        "strange": found.altered,
        "kills": len(back),
        "back_s": statistics.median(back or [math.inf]),
        "back_max_s": max(back, default=math.inf),
    }


def _reached(tally: Tally, events: int) -> Callable[[], bool]:
    return lambda: tally.delivered >= events


def _is_back(reader: TallyReader) -> Callable[[], bool]:
    # Or everything had come already, because the consumer was behind.
    return lambda: reader.next_new is not None or not reader.tally.missing


def expected_s(rows: int, kills: int, *, is_debezium: bool) -> float:
    """Return how long a round will take, with the rows made first."""
    return 25.0 + rows / 700 + 9.0 * kills if is_debezium else 5.0 + rows / 4_000 + 2.5 * kills


def percentages(text: str) -> list[int]:
    """The points of `--at`, in order. Raises typer.BadParameter for anything but whole numbers of 1 to 99."""
    parts = text.split(",")
    if not all(part.strip().isdigit() and 0 < int(part) < 100 for part in parts):
        raise typer.BadParameter(f"--at takes percentages of 1 to 99, separated by commas, not {text!r}")
    return sorted(map(int, parts))


def main(
    rows: Annotated[int, typer.Option(min=1_000, help="Rows of 20 events.")] = 60_000,
    rounds: Annotated[int, typer.Option(min=1, help="How often each is measured; the medians count.")] = 3,
    at: Annotated[str, typer.Option(help="Kill when so many per cent are delivered.")] = "5,10,15,20,25",
    lanes: Annotated[int, typer.Option(min=1, help="Lanes of the outbox.")] = 4,
    debezium: Annotated[bool, typer.Option(help="Debezium, at least once.")] = True,
    exactly_once: Annotated[bool, typer.Option(help="Debezium in Kafka Connect's transactions.")] = False,
    offset_flush_ms: Annotated[
        int, typer.Option(min=1, help="How often Connect stores how far it is; its default is 60,000.")
    ] = 1_000,
    folder: Folder = RESULTS,
) -> None:
    """Measure and print."""
    points = percentages(at)
    logs.configure(LogSettings(level="WARNING"))
    choices = {each.name: each for each in debezium_choices(debezium, exactly_once, offset_flush_ms)}
    parameters = {"rows": rows, "lanes": lanes, "killed at %": at, "offset flush ms": offset_flush_ms}
    with (
        measurement(folder, "relay-kills", "The publisher: killed", LABELS, parameters) as (kept, failures),
        tempfile.TemporaryDirectory(prefix="relay-kills-") as directory,
        Stack.from_environment_or_start(Path(directory), heap="1g", postgres_settings=LOGICAL) as stack,
    ):

        def relay(whose: str) -> AbstractContextManager[Relay]:
            if whose in choices:
                return debezium_relay(stack, rows, choices[whose], Path(directory))
            return publisher_relay(stack, rows, lanes, Path(directory))

        turns = [whose for whose, _ in kept.missing([OURS, *choices], rounds)]
        announce(
            sum(expected_s(rows, len(points), is_debezium=whose in choices) for whose in turns), len(turns)
        )
        for whose in turns:
            with failures.tolerated(whose) as load, relay(whose) as ready:
                kept.add(whose, measure_kills(stack, ready, rows, points), load_before=load)


if __name__ == "__main__":
    typer.run(main)
