"""The report of a run as a Markdown page."""

from collections import Counter
from dataclasses import dataclass
from datetime import datetime

from tests.soak.chapter import Totals


@dataclass(frozen=True)
class Run:
    """What was asked for, and what came of it."""

    began: datetime
    minutes: float
    seed: int
    rate: float
    publishers: int
    totals: Totals
    happened: Counter[str]
    batches: int
    recomputed: int
    generations: int
    lane_epochs: int
    filled_in: int
    verdict: str


def page(run: Run) -> str:
    """Return the page."""
    totals = run.totals
    letters = ", ".join(f"{number} {reason}" for reason, number in sorted(totals.letters.items()))
    rows = "\n".join(f"| {what} | {times} |" for what, times in sorted(run.happened.items()))
    return f"""# Soak

Written by `make soak-short` (ten minutes) or `make soak` (two hours); do not edit. The real pipeline on one machine: `spark-job run`
with Spark, {run.publishers} `publisher run` processes, Postgres with fsync, Kafka. Sessions come in all the time, with everything that goes
wrong in them; faults are drawn by a seed; a `read_committed` consumer watches from the first event on. The run is divided into
chapters: at the end of each one everything is delivered, compared with the reference model (multiset, bytes, order per session key,
dead letters, ledger, deliveries), and forgotten.

| | |
| --- | --- |
| began | {run.began:%Y-%m-%d %H:%M} UTC |
| minutes of faults | {run.minutes:g} |
| seed, rate | {run.seed}, {run.rate:g} sessions/s |
| **verdict** | **{run.verdict}** |
| chapters judged | {totals.chapters}, draining took {totals.drain_s:.0f} s in all |
| input | {totals.records:,} records |
| sessions with outputs | {totals.sessions:,} |
| output events delivered | {totals.outputs:,}: none missing, none twice, in order |
| dead letters | {letters or "none"} |
| duplicates dropped | {totals.duplicates:,} |
| batches | {run.batches:,}, of which Spark ran {run.recomputed} again after their commit (same content) |
| generations (checkpoints) | {run.generations} |
| lane epochs | {run.lane_epochs} |
| events seen twice by the consumer | 0 |
| records in aborted Kafka transactions | {totals.aborted:,}, none of them seen |
| deliveries filled in after a crash | {run.filled_in} |
| events replayed to side topics | {totals.replayed:,} |

| what happened | times |
| --- | --- |
{rows}
"""
