"""A report shows medians, says what never came, and changes nothing of a page but its own place."""

import json
import math

import pytest

from benchmarks.support.report import Report, filled
from tests.support.paths import ROOT


def compared() -> Report:
    report = Report(
        "throughput", {"sessions": 60_000}, {"warm": "sessions/s, warm", "p99": "p99, s"}, load_before=0.5
    )
    for warm, p99 in ((3_000.0, 0.4), (3_300.0, math.inf), (2_000.0, 0.5)):
        report.add("this version", {"warm": warm, "p99": p99})
        report.add("before", {"warm": warm / 2, "p99": 1.0})
    return report


def test_medians_of_the_rounds_and_their_ratio() -> None:
    rows = compared().as_table().splitlines()
    assert rows[2:] == [
        "|  | this version | before | ratio |",
        "| --- | ---: | ---: | ---: |",
        "| sessions/s, warm | 3,000 | 1,500 | 2.00 |",
        "| p99, s | 0.5 | 1 | 0.50 |",
    ]
    assert "medians of 3 rounds; sessions 60,000." in rows[0]


def test_what_never_came_in_most_rounds_is_said_and_has_no_ratio() -> None:
    report = compared()
    report.add("this version", {"warm": 3_100.0, "p99": math.inf})
    report.add("this version", {"warm": 3_100.0, "p99": math.inf})
    assert "| p99, s | never | 1 |  |" in report.as_table()
    document = json.loads(report.as_json())
    assert document["medians"]["this version"]["p99"] is None
    assert [each["p99"] for each in document["rounds"]["this version"]] == [0.4, None, 0.5, None, None]


def test_one_checkout_alone_has_no_ratio() -> None:
    report = Report("idle", {}, {"cpu": "CPU, %"})
    report.add("this version", {"cpu": 3.25})
    assert report.as_table().splitlines()[2:] == [
        "|  | this version |",
        "| --- | ---: |",
        "| CPU, % | 3.25 |",
    ]


PAGE = """Text.

<!-- measured: idle -->
old
<!-- end -->

<!-- measured: latency-100 -->
other
<!-- end -->
"""


def test_a_table_goes_to_its_place_in_the_page_and_nowhere_else() -> None:
    page = filled(PAGE, "idle", r"| new \1 |")
    assert page == PAGE.replace("old", r"| new \1 |")
    assert filled(page, "idle", "old") == PAGE


@pytest.mark.parametrize("name", ["latency-500", "latency"])
def test_a_page_without_the_place_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="0 places"):
        filled(PAGE, name, "x")


@pytest.mark.parametrize(
    "name",
    [
        "idle",
        "held",
        "rebuild",
        "open-sessions",
    ],
)
def test_the_documentation_has_one_place_for_each_measurement(name: str) -> None:
    page = ROOT / "docs" / "benchmarks.md"
    assert "a table\n<!-- end -->" in filled(page.read_text("utf-8"), name, "a table")
