"""The pages for operators name what the code can say: why a lane stopped, and every warning in the logs."""

import ast
import re
from pathlib import Path

import pytest

from publisher.protocol.stop_reasons import StopReason
from tests.support.pages.markdown import tables
from tests.support.paths import ROOT

SERVICES = ("spark_job", "publisher", "contract", "service", "db")
_NAME = re.compile(r"`([a-z_]+)`")


@pytest.mark.guarantee(123)
def test_every_reason_of_a_stopped_lane_is_on_the_page_with_its_way_on() -> None:
    (rows,) = [body for head, body in tables(Path("docs/stopped-lanes.md")) if head[0] == "reason"]
    named = {name for reason, *_ in rows for name in _NAME.findall(reason)}
    assert named == {why.value for why in StopReason}
    assert all(way for *_, way in rows)


def test_every_warning_that_a_service_can_log_is_on_the_page_and_no_other() -> None:
    logged, prefixes = warnings()
    rows = [row for head, body in tables(Path("docs/logs.md")) if head[0] == "event" for row in body]
    named = {name for events, *_ in rows for name in _NAME.findall(events)}
    assert logged <= named, f"not on the page: {sorted(logged - named)}"
    unknown = {name for name in named - logged if not name.startswith(tuple(prefixes))}
    assert not unknown, f"nobody logs {sorted(unknown)}"


def warnings() -> tuple[set[str], set[str]]:
    """The events that are logged as warnings and errors; the beginnings of those whose names are put together (`lane_...`)."""
    names, prefixes = set(), set()
    for path in (file for service in SERVICES for file in (ROOT / service).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.Call) or not node.args:
                continue
            called, event = ast.unparse(node.func), node.args[0]
            if called.removeprefix("_") in ("log.warning", "log.error") and isinstance(event, ast.Constant):
                names.add(str(event.value))
            # `log` is the method that was chosen by the event's gravity.
            elif called in ("log", "log.warning") and isinstance(event, ast.JoinedStr):
                prefixes.add(ast.unparse(event.values[0]).strip("'"))
    return names, prefixes
