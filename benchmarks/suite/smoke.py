"""A minute of the suite with ours, started once: a small backlog, then a steady rate. Whether the machinery works, and nothing of speed."""

from pathlib import Path

from benchmarks.peers.ours import Ours
from benchmarks.suite.load.workload import Bench, completeness
from benchmarks.suite.measures import latency, throughput
from benchmarks.suite.report import page
from benchmarks.suite.results import measurement
from benchmarks.support.servers import Servers

_SESSIONS = 1_200
_BATCH_EVENTS = 12_000
"""Ten batches, so that some come after the first third."""
_RATE = 20.0
_SECONDS = 4.0


def run(servers: Servers, folder: Path) -> list[Path]:
    """Measure into the folder, and render a page there. Returns the page and its pictures."""
    bench, contender = Bench(servers), Ours({"JOB__MAX_EVENTS_PER_BATCH": str(_BATCH_EVENTS)})
    work = bench.preloaded(_SESSIONS)
    with bench.running(contender, work.topic) as run:
        cost = throughput.delivered(run, work, work.sessions)
        run.ends |= work.ends
        steady = latency.phase(run, _RATE, 0.0, _SECONDS)
        arrivals = run.watcher.stop()
    whole = completeness(servers.bootstrap_servers, run.ends)
    speeds = throughput.speeds(arrivals, work.sessions, run.started_s)
    late = steady.measured(arrivals.received)
    parameters = {"sessions": _SESSIONS, "seconds": _SECONDS}
    for name, measure, point, found in (
        ("throughput", throughput, "", speeds | cost | whole),
        ("latency", latency, f"{_RATE:g}", late | whole),
    ):
        with measurement(folder, name, measure.TITLE, measure.LABELS, parameters) as (kept, _):
            kept.add(contender.name, found, point, load_before=0.0)
    return page.write(page.of(folder), folder)
