"""What only measures the work never ends it: what failed is logged once, and the next measurement is made."""

import ast
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from service.observability.best_effort import best_effort


def test_a_failure_is_logged_once_and_stays_with_the_measurement() -> None:
    @best_effort("a count in this test")
    def count(by: str) -> int:
        return int(by)

    with capture_logs() as logs:
        assert [count(by) for by in ("1", "none", "none", "2")] == [1, None, None, 2]
    assert [(line["event"], line["what"], line["log_level"]) for line in logs] == [
        ("metrics_failed", "a count in this test", "error")
    ]
    assert isinstance(logs[0]["exc_info"], ValueError)


def test_what_the_caller_wants_to_know_continues_to_it() -> None:
    with pytest.raises(ConnectionError), best_effort("a look in this test", OSError):
        raise ConnectionResetError


WITHOUT = {
    # Its block is the work itself, whose exceptions are the caller's. It counts by two functions, which are looked at here.
    "publisher/monitoring/metrics.py": {"transaction"},
}
MEASURES = {
    "spark_job/monitoring/metrics.py": None,
    "publisher/monitoring/metrics.py": None,
    "publisher/monitoring/latency.py": None,
    # The rest of it is set up once, at the start, and ends with the process.
    "service/observability/tracing.py": {"batch", "transaction"},
}
"""Module -> the functions that are called beside the work, None where all are that have no leading underscore."""


@pytest.mark.parametrize("module", MEASURES)
def test_what_measures_the_work_is_best_effort(module: str) -> None:
    functions = {
        each.name: each
        for each in ast.parse(Path(module).read_text()).body
        if isinstance(each, ast.FunctionDef)
    }
    public = MEASURES[module] or {name for name in functions if not name.startswith("_")}
    counted = {
        call.func.id
        for name in WITHOUT.get(module, set())
        for call in ast.walk(functions[name])
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in functions
    }
    asked = (public | counted) - WITHOUT.get(module, set())
    assert asked
    assert asked == {name for name in asked if _is_best_effort(functions[name])}


def _is_best_effort(function: ast.FunctionDef) -> bool:
    return any(
        isinstance(each, ast.Call) and isinstance(each.func, ast.Name) and each.func.id == "best_effort"
        for each in function.decorator_list
    )
