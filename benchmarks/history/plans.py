"""docs/performance/audit-plans.txt, as the benchmark writes it."""

import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from benchmarks.history.queries import Measured
from benchmarks.history.services import Audit


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What was measured on. `loads`: the machine's load average before and after."""

    postgres: str
    sessions: int
    batches: int
    gigabytes: float
    loads: tuple[float, float]

    def as_text(self) -> str:
        """In words."""
        cores = os.cpu_count() or 1
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
        before, after = self.loads
        quiet = "nothing else running" if max(before, after) <= cores else "**other work beside it**"
        return (
            f"{datetime.now(UTC):%Y-%m-%d}, {cores} cores, {memory:.0f} GB of memory, {platform.system()}, Postgres {self.postgres}"
            f" with its defaults (`shared_buffers` 128 MB); load average {before:.1f} before and {after:.1f} after: {quiet}."
        )


def written(
    found: list[Measured], full_read_s: float, others: Mapping[str, Any], around: Surroundings
) -> str:
    """Return the text of the file."""
    lines = [
        "Plans and times of the audit queries",
        "",
        "Made by `python -m benchmarks.audit_views --plans docs/performance/audit-plans.txt`: every query of docs/audit.md,",
        f"as `outbox_auditor`, on a synthetic outbox of {around.sessions:,} sessions in {around.batches:,} batches over seven days,",
        f"{around.gigabytes:.1f} GB.",
        around.as_text(),
        "",
        "- *cold*: the server started anew and its files dropped from the machine's cache: the first question of the day",
        "- *warm*: median of three",
        "- *generic*: warm, by a plan made without knowing the values, as a prepared statement may get it",
        "- *pages*: of 8 kB, looked at by the warm run",
        f"- *ratio*: to reading all rows once, warm, which any question without an index has to: {full_read_s:.1f} s",
        "",
        "| query | rows | cold, ms | warm, ms | generic, ms | pages | ratio |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    lines += [
        *(row(one, full_read_s) for one in found),
        "",
        "Beside them, on the same outbox:",
        "",
        "| what | seconds |",
        "| --- | ---: |",
        *(f"| {name} | {_words(cost)} |" for name, cost in others.items()),
        "",
        "Left out of the plans: what took less than a hundredth of the time, and details that say nothing of the cost.",
    ]
    for one in found:
        lines += ["", f"## {one.query.name}", ""]
        if one.warm_s is None:
            lines += ["**It did not end in time; the plan is an estimate.**", ""]
        lines += one.plan
    return "\n".join(lines) + "\n"


def row(one: Measured, full_read_s: float) -> str:
    """Return the line of a query in the table."""
    ratio = "" if one.warm_s is None else f"1 : {full_read_s / one.warm_s:,.0f}"
    generic = _ms(one.generic_s) if one.query.values and one.generic_s else "–"
    return f"| {one.query.name} | {one.rows:,} | {_ms(one.cold_s)} | {_ms(one.warm_s)} | {generic} | {one.buffers:,} | {ratio} |"


def _ms(seconds: float | None) -> str:
    if seconds is None:
        return "too long"
    return f"{seconds * 1000:,.0f}" if seconds >= 0.01 else f"{seconds * 1000:.1f}"


def _words(cost: Any) -> str:
    if not isinstance(cost, Audit):
        return f"{cost:.3f}"
    phases = ", ".join(f"{name} {seconds}" for name, seconds in cost.phases.items())
    return f"{cost.seconds} ({phases}; CPU of its own process {cost.cpu_s}, memory at most {cost.peak_mb:.0f} MB)"
