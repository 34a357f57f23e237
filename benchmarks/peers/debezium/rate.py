"""Events per second through Debezium: a backlog in Postgres' log, from a warm worker."""

from pathlib import Path

from benchmarks.peers.debezium.connect import connect_worker
from benchmarks.peers.debezium.settings import ID_HEADER, Choice
from benchmarks.peers.debezium.table import debezium_table
from benchmarks.suite.results import Measured
from benchmarks.support.outbox import EVENTS
from benchmarks.support.reading import tally_reader
from benchmarks.support.servers import cpu_s, peak_mb
from benchmarks.support.tally import Tally
from devstack.stack import Stack

STALLED_S = 120.0


def measure_debezium(stack: Stack, rows: int, warm_up: int, choice: Choice, folder: Path) -> Measured:
    """Let a new worker relay `warm_up` sessions, and time it at `rows` more. Raises SystemExit where events do not come."""
    bootstrap = stack.kafka.bootstrap_servers
    with debezium_table(stack) as table, connect_worker(bootstrap, folder, table.topic, choice) as worker:
        worker.create_connector(table.dsn)
        with tally_reader(bootstrap, table.topic, ID_HEADER, Tally(0, warm_up)) as reader:
            table.insert(warm_up)
            _wait(reader.until(lambda: not reader.tally.missing, STALLED_S))
        worker.stop_connector()
        table.insert(rows)
        before = cpu_s(worker.process)
        worker.resume_connector()
        with tally_reader(bootstrap, table.topic, ID_HEADER, Tally(warm_up, rows)) as reader:
            reader.wait_for_records((warm_up + rows) * EVENTS, STALLED_S)
            used = cpu_s(worker.process) - before
            peak = peak_mb(worker.process)
            _wait(reader.until(lambda: not reader.tally.missing, STALLED_S))
    return {
        "events_s": reader.events_s(),
        "cpu_us": 1e6 * used / (rows * EVENTS),
        "peak_mb": peak,
    }


def _wait(has_come: bool) -> None:
    if not has_come:
        raise SystemExit(f"Debezium sent nothing new for {STALLED_S:g} s, and events are missing")
