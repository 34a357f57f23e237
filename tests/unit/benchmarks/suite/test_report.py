"""The page says what the files say, with when, where and how; and it is what the files in this checkout render."""

import json
import math
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks.suite.report.chart import Bar, Group, svg
from benchmarks.suite.report.documents import documents
from benchmarks.suite.report.page import filled, of, rendered, write
from benchmarks.suite.report.tables import number, table
from benchmarks.suite.results import PAGE, RESULTS, Results

MARKED = (
    "Text.\n\n<!-- measured: throughput -->\n<!-- end -->\n\n<!-- measured: others -->\nold\n<!-- end -->\n"
)


def measured(folder: Path, name: str = "throughput", *points: str) -> Path:
    kept = Results(
        folder / f"{name}.json",
        title="Speed",
        labels={"warm": "sessions/s", "missing": "outputs missing", "nobody": "what nobody measured"},
        parameters={"sessions": 60},
    )
    for point in points or ("",):
        for warm in (300.0, 200.0, 100.0):
            kept.add("a peer", {"warm": warm * 2, "missing": 1}, point, load_before=0.5)
            kept.add("ours", {"warm": warm, "missing": 0}, point, load_before=1.5)
    return kept.path


def test_medians_with_their_spread_and_the_ratio_to_ours(tmp_path: Path) -> None:
    measured(tmp_path)
    text = table(documents(tmp_path)["throughput"])
    assert text.splitlines()[:4] == [
        "|  | ours | a peer |",
        "| --- | ---: | ---: |",
        "| sessions/s | 200 (100–300) | 400 (200–600)<br>×0.50 |",
        "| outputs missing | 0 | 1 |",
    ]
    for said in ("load average before 0.5 to 1.5", "3 rounds", "sessions 60", "commit "):
        assert said in text


def test_errors_that_no_round_had_are_a_sentence_and_parts_of_a_sum_stay_in_the_file(tmp_path: Path) -> None:
    kept = Results(
        tmp_path / "throughput.json",
        title="Speed",
        labels={"warm": "sessions/s", "cpu_job_jvm": "the JVM", "missing": "missing", "twice": "twice"},
        parameters={},
    )
    kept.add("ours", {"warm": 1.0, "cpu_job_jvm": 2.0, "missing": 0, "twice": 0}, load_before=0.0)
    kept.add("a peer", {"warm": 1.0, "cpu_job_jvm": 2.0, "missing": 0, "twice": 5}, load_before=0.0)
    text = table(documents(tmp_path)["throughput"])
    assert [row.split(" | ")[0] for row in text.splitlines()[2:4]] == ["| sessions/s", "| twice"]
    assert "the JVM" not in text
    assert "None in any round: missing." in text


def test_points_are_rows_and_numbers_are_in_order(tmp_path: Path) -> None:
    measured(tmp_path, "latency", "1000", "10")
    rows = table(documents(tmp_path)["latency"]).splitlines()
    assert [row.split(" | ")[0] for row in rows[2:6]] == [
        "| 10, ours",
        "| 10, a peer",
        "| 1000, ours",
        "| 1000, a peer",
    ]


def test_what_never_came_is_said_and_has_no_ratio(tmp_path: Path) -> None:
    kept = Results(tmp_path / "faults.json", title="Faults", labels={"s": "seconds"}, parameters={})
    kept.add("ours", {"s": 2.0}, load_before=0.0)
    kept.add("a peer", {"s": math.inf}, load_before=0.0)
    assert "| seconds | 2 | never |" in table(documents(tmp_path)["faults"])


def test_a_file_that_is_not_known_here_is_rendered_among_the_others(tmp_path: Path) -> None:
    measured(tmp_path)
    measured(tmp_path, "relay")
    page, pictures = rendered(MARKED, tmp_path, "performance")
    assert page.count("| sessions/s | 200 (100–300) |") == 2
    assert page.index("### Speed") > page.index("<!-- measured: others -->")
    assert "old" not in page
    assert "![Speed](performance/throughput.svg)" in page
    assert list(pictures) == ["throughput.svg"]


PAGE_OF_TWO = """Text.

<!-- measured: idle -->
old
<!-- end -->

<!-- measured: latency-100 -->
other
<!-- end -->
"""


def test_a_table_goes_to_its_place_in_the_page_and_nowhere_else() -> None:
    page = filled(PAGE_OF_TWO, "idle", r"| new \1 |")
    assert page == PAGE_OF_TWO.replace("old", r"| new \1 |")
    assert filled(page, "idle", "old") == PAGE_OF_TWO


@pytest.mark.parametrize("name", ["latency-500", "latency"])
def test_a_page_without_the_place_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="0 places"):
        filled(PAGE_OF_TWO, name, "x")


def test_rendering_again_changes_nothing(tmp_path: Path) -> None:
    measured(tmp_path)
    once = rendered(MARKED, tmp_path, "performance")
    assert rendered(once[0], tmp_path, "performance") == once


def test_a_place_without_a_file_says_so(tmp_path: Path) -> None:
    assert "Not measured yet." in rendered(MARKED, tmp_path, "performance")[0]


def test_a_file_without_a_place_is_refused(tmp_path: Path) -> None:
    measured(tmp_path, "new")
    with pytest.raises(ValueError, match="no place for new"):
        rendered("Text.", tmp_path, "performance")


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text(json.dumps({"a": 1}))
    with pytest.raises(ValueError, match=r"other\.json: no rounds"):
        documents(tmp_path)


def test_a_picture_is_well_formed_and_its_bars_are_as_long_as_their_values() -> None:
    picture = svg(
        "Speed <of all>", "1/s", [Group("", [Bar("ours", 100.0, 90.0, 110.0), Bar("peer", 50.0, 50.0, 50.0)])]
    )
    root = ElementTree.fromstring(picture)
    space = "{http://www.w3.org/2000/svg}"
    widths = [float(bar.attrib["width"]) for bar in root.iter(f"{space}rect")]
    assert widths[0] == pytest.approx(2 * widths[1], rel=0.01)
    assert len([line for line in root.iter(f"{space}line") if line.attrib["class"] == "spread"]) == 1
    assert "prefers-color-scheme: dark" in picture


def test_a_logarithmic_picture_has_decades_and_never_reaches_the_edge() -> None:
    bars = [Bar("ours", 0.02, 0.02, 0.02), Bar("peer", math.inf, math.inf, math.inf)]
    root = ElementTree.fromstring(svg("Late", "s", [Group("10", bars)], logarithmic=True))
    texts = [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"0.01", "0.1", "never"} <= set(texts)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (3.0, "3"), (0.1234, "0.123"), (12.34, "12.3"), (1_234.5, "1,234"), (math.inf, "never")],
)
def test_numbers_are_short(value: float, text: str) -> None:
    assert number(value) == text


def test_the_page_is_what_its_files_render() -> None:
    page, pictures = rendered(PAGE.read_text("utf-8"), RESULTS, "performance")
    assert PAGE.read_text("utf-8") == page, "run make bench-report"
    for name, picture in pictures.items():
        assert (RESULTS / name).read_text("utf-8") == picture, "run make bench-report"


def test_what_never_came_alone_has_no_picture(tmp_path: Path) -> None:
    kept = Results(tmp_path / "faults.json", title="Faults", labels={"seconds": "s"}, parameters={})
    kept.add("ours", {"seconds": math.inf}, "job", load_before=0.0)
    page, pictures = rendered("<!-- measured: others -->\n<!-- end -->\n", tmp_path, ".")
    assert "| job | never |" in page
    assert pictures == {}


def test_results_of_another_folder_leave_the_published_page_alone(tmp_path: Path) -> None:
    measured(tmp_path)
    assert of(RESULTS) == PAGE
    page, *pictures = write(of(tmp_path), tmp_path)
    assert page.parent == tmp_path
    assert [picture.name for picture in pictures] == ["throughput.svg"]
    assert "![Speed](./throughput.svg)" in page.read_text("utf-8")


def test_a_page_may_be_anywhere(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    (tmp_path / "page").mkdir()
    measured(tmp_path / "results")
    page, *_ = write(tmp_path / "page" / "one.md", tmp_path / "results")
    assert "![Speed](../results/throughput.svg)" in page.read_text("utf-8")
