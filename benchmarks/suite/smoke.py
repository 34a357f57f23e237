"""A minute of the suite: each of its parts at its smallest, with ours. It says that the machinery works, and nothing of speed."""

from pathlib import Path

from benchmarks.suite.load.ours import ours
from benchmarks.suite.load.workload import Bench
from benchmarks.suite.measures import latency, throughput
from benchmarks.suite.report import page
from benchmarks.suite.results import Results
from benchmarks.support.rounds import FailedRounds
from benchmarks.support.servers import Servers

PAGE = """# Smoke

<!-- measured: throughput -->
<!-- end -->

<!-- measured: latency -->
<!-- end -->
"""
_SESSIONS = 3_000
_RATE = 20.0
_SECONDS = 4.0


def run(servers: Servers, folder: Path, command: list[str]) -> list[Path]:
    """Measure into the folder, and render a page there. Returns the page and its pictures. Raises typer.Exit where a rate failed."""
    bench, failures = Bench(servers), FailedRounds()
    # Several batches, so that some come after the first third.
    contender = ours({"JOB__MAX_EVENTS_PER_BATCH": "30000"})
    work = bench.preloaded(_SESSIONS)
    kept = Results(
        folder / "throughput.json",
        title=throughput.TITLE,
        labels=throughput.LABELS,
        parameters={"sessions": _SESSIONS},
        command=command,
    )
    for name, _ in kept.missing([contender.name], 1):
        kept.add(name, throughput.measure(bench, contender, work), load_before=0.0)
    kept = Results(
        folder / "latency.json",
        title=latency.TITLE,
        labels=latency.LABELS,
        parameters={"seconds": _SECONDS},
        command=command,
    )
    for _, left in kept.missing([contender.name], 1, [f"{_RATE:g}"]):
        for _, measured in latency.measure(
            bench, contender, [_RATE], failures, partitions=2, warm_up_s=0.0, seconds=_SECONDS
        ):
            kept.add(contender.name, measured, left[0], load_before=0.0)
    failures.finish()
    target = folder / "performance.md"
    target.write_text(PAGE, "utf-8")
    return page.write(target, folder)
