"""The queries of a page of the documents, run as its readers would: read from disk, from memory, and by a plan that knows no values."""

import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any, LiteralString

import psycopg

Connection = psycopg.Connection[Any]

ROLE = "outbox_auditor"
_BLOCK = re.compile(r"^```sql\n-- query: (?P<name>[\w-]+)[^\n]*\n(?P<sql>.*?)^```$", re.MULTILINE | re.DOTALL)
_WARM_RUNS = 3
_SLOW_S = 20.0


@dataclass(frozen=True, slots=True)
class Query:
    """One block of the page. `values`: what the generic plan does not know, by the name of its placeholder."""

    name: str
    text: str
    values: Mapping[str, str] = field(default_factory=dict)

    @property
    def literal(self) -> LiteralString:
        """The statement with `%(name)s` for its values: out of a file of the repository, hence the literal type that psycopg asks for."""
        text: LiteralString = self.text
        return text


@dataclass(slots=True)
class Measured:
    """What a query took, in seconds; None: it was stopped by the timeout."""

    query: Query
    rows: int = 0
    cold_s: float | None = None
    warm_s: float | None = None
    generic_s: float | None = None
    buffers: int = 0
    """Pages of 8 kB that the warm run looked at."""
    plan: list[str] = field(default_factory=list)


def queries_of(page: Path, stand_ins: Mapping[str, str]) -> list[Query]:
    """Return the blocks that begin with `-- query: <name>`. `stand_ins`: for each literal of the page the one of this outbox."""
    found = []
    for block in _BLOCK.finditer(page.read_text("utf-8")):
        text, values = block["sql"].rstrip().rstrip(";").replace("%", "%%"), {}
        for number, (literal, value) in enumerate(stand_ins.items()):
            if f"'{literal}'" in text:
                values[f"v{number}"] = value
                text = text.replace(f"'{literal}'", f"%(v{number})s::text")
        found.append(Query(block["name"], text, values))
    return found


@contextmanager
def _as_auditor(connection: Connection, timeout_s: int) -> Iterator[None]:
    """A transaction with the auditor's rights that ends after `timeout_s`."""
    with connection.transaction():
        connection.execute("SELECT set_config('role', %s, true)", (ROLE,))
        connection.execute("SELECT set_config('statement_timeout', %s, true)", (f"{timeout_s}s",))
        yield


def run(
    connection: Connection, query: Query, timeout_s: int, *, generic: bool = False
) -> tuple[int, float] | None:
    """Return how many rows it gave and the seconds until all were here; None where it took longer than `timeout_s`."""
    try:
        with _as_auditor(connection, timeout_s):
            if generic:
                connection.execute("SET LOCAL plan_cache_mode = force_generic_plan")
            began = time.perf_counter()
            # Prepared on the server: with its values as parameters, by a plan for all values where `generic`.
            rows = connection.execute(query.literal, query.values, prepare=generic).fetchall()
            return len(rows), time.perf_counter() - began
    except psycopg.errors.QueryCanceled:
        return None


def measure_warm(connection: Connection, found: Measured, timeout_s: int) -> None:
    """Fill in the times of a cache that holds what it asks for, and the plan. What took long when cold is asked once."""
    is_slow = found.cold_s is None or found.cold_s > _SLOW_S
    runs = [run(connection, found.query, timeout_s) for _ in range(1 if is_slow else _WARM_RUNS)]
    took = [each for each in runs if each is not None]
    if took:
        found.rows = took[0][0]
        found.warm_s = median(seconds for _, seconds in took)
    if found.query.values and not is_slow:
        # A first run reads what only this plan needs.
        _, generic = (run(connection, found.query, timeout_s, generic=True) for _ in range(2))
        found.generic_s = None if generic is None else generic[1]
    found.plan, found.buffers = _plan(connection, found.query, timeout_s, analyze=bool(took))


def _plan(connection: Connection, query: Query, timeout_s: int, *, analyze: bool) -> tuple[list[str], int]:
    options = "ANALYZE, BUFFERS, COSTS OFF, TIMING ON" if analyze else "COSTS ON"
    with _as_auditor(connection, 4 * timeout_s):
        explained = replace(query, text=f"EXPLAIN ({options}) {query.text}")
        lines = [row[0] for row in connection.execute(explained.literal, query.values)]
    return trimmed(lines), _pages(lines)


def _pages(lines: list[str]) -> int:
    """Pages that the whole query looked at: the first line of buffers is the topmost node's."""
    first = next((line for line in lines if "Buffers:" in line), "")
    return sum(int(number) for number in re.findall(r"(?:hit|read)=(\d+)", first))


_KEPT = (
    "Index Cond",
    "Recheck Cond",
    "Filter:",
    "Rows Removed",
    "Sort Key",
    "Hash Cond",
    "Join Filter",
    "Heap Fetches",
)


_TIMES = re.compile(r"actual time=[\d.]+\.\.(?P<ms>[\d.]+) rows=[\d.]+ loops=(?P<loops>\d+)")
_HEAD = re.compile(r"\s*(InitPlan|SubPlan|CTE)\b")
_SMALL = 0.01


def trimmed(lines: list[str]) -> list[str]:
    """Return a plan without what took less than a hundredth of the time, and without the details that say nothing of its cost."""
    kept: list[str] = []
    hidden_below: int | None = None
    buffers_said = False
    whole = _took(lines[0]) if lines else None
    for line in lines:
        indent = len(line) - len(line.lstrip())
        is_node = "->" in line or indent == 0 or _HEAD.match(line) is not None
        if hidden_below is not None:
            if indent > hidden_below:
                continue
            hidden_below = None
        took = _took(line) if is_node else None
        is_small = took is not None and whole is not None and took < _SMALL * whole
        if "(never executed)" in line or is_small:
            hidden_below = indent
        elif line.startswith(("Planning:", "JIT:")):
            hidden_below = 0
        elif "Buffers:" in line:
            kept += [] if buffers_said else [line]
            buffers_said = True
        elif is_node or line.strip().startswith(_KEPT):
            kept.append(line)
    return [line if len(line) <= 200 else f"{line[:199]}…" for line in _without_empty_heads(kept)]


def _took(line: str) -> float | None:
    """Milliseconds of a node in all its loops; None where it is none, or was not run."""
    found = _TIMES.search(line)
    return None if found is None else float(found["ms"]) * int(found["loops"])


def _without_empty_heads(lines: list[str]) -> list[str]:
    """Leave out the line that announces a part of the plan of which nothing is left."""
    kept: list[str] = []
    for line in reversed(lines):
        below = kept[-1] if kept else ""
        if _HEAD.match(line) and len(below) - len(below.lstrip()) <= len(line) - len(line.lstrip()):
            continue
        kept.append(line)
    return kept[::-1]
