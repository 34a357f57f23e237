"""`make test-matrix`: its cells can be run, a run proves its version, and the page shows what ran."""

import os
import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.matrix.cells import CELLS, Cell
from tests.matrix.results import PAGE, CellResult, load, read_report, rendered, with_news
from tests.support.paths import JARS_LOCK, ROOT
from tests.support.servers.choice import CELL_VARIABLE

_REPORT = """<testsuites><testsuite>
<testcase name="version"><properties><property name="version" value="15.16"/></properties></testcase>
<testcase name="passed"/>
<testcase name="failed"><failure message="no"/></testcase>
<testcase name="failed and not undone"><failure message="no"/><error message="nor that"/></testcase>
<testcase name="skipped"><skipped message="no PgBouncer"/></testcase>
</testsuite></testsuites>
"""


def test_the_page_shows_the_data() -> None:
    assert (ROOT / PAGE).read_text("utf-8") == rendered(CELLS, load(ROOT))


def test_the_page_names_the_versions_of_make_test() -> None:
    ((kafka,), (spark,)) = (
        re.findall(pattern, (ROOT / path).read_text("utf-8"))
        for path, pattern in ((JARS_LOCK, r"kafka_2\.13:(\S+) \+"), ("pyproject.toml", r"pyspark==([\d.]+)"))
    )
    text = rendered([], {})
    assert f"Kafka {kafka}," in text
    assert f"Spark {spark}." in text


@pytest.mark.parametrize("path", sorted({path for cell in CELLS for path in cell.part}))
def test_what_a_cell_runs_exists(path: str) -> None:
    assert (ROOT / path).exists()


def test_each_lock_file_is_of_a_cell() -> None:
    locks = {path.stem for path in (ROOT / "tests/matrix").glob("*.lock")}
    assert locks <= {cell.name for cell in CELLS}
    for name in locks:
        version = name.removeprefix("kafka-")
        assert f"kafka_2.13:{version} +" in (ROOT / "tests/matrix" / f"{name}.lock").read_text("utf-8")


def test_a_report_is_counted_a_test_once(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text(_REPORT, "utf-8")
    found = read_report(report, "2026-11-27")
    assert found == CellResult("2026-11-27", "15.16", passed=2, failed=2, skipped=1)
    assert found.shown() == "2 passed, 2 **failed**, 1 skipped"


@pytest.mark.parametrize("report", [None, "<testsuites><testsuite/></testsuites>"])
def test_a_run_without_a_test_has_failed(tmp_path: Path, report: str | None) -> None:
    path = tmp_path / "report.xml"
    if report:
        path.write_text(report, "utf-8")
    assert read_report(path, "2026-11-27") == CellResult("2026-11-27", failed=1)


def test_every_cell_has_a_row_run_or_not() -> None:
    cells = [Cell("Postgres", version, ()) for version in ("15", "18", "19")]
    results = {
        "postgres-15": CellResult("2026-11-27", not_run="apt-get install postgresql-15"),
        "postgres-18": CellResult("2026-11-26", "18.4", passed=7),
    }
    text = rendered(cells, results)
    assert "| Postgres 15 | - | 2026-11-27 | not run: apt-get install postgresql-15 |\n" in text
    assert "| Postgres 18 | 18.4 | 2026-11-26 | 7 passed |\n" in text
    assert "| Postgres 19 | - | - | never run |\n" in text


def test_a_machine_without_a_version_does_not_undo_what_ran_elsewhere() -> None:
    ran, missing = CellResult("2026-11-26", "15.16", passed=7), CellResult("2026-11-27", not_run="not here")
    assert with_news({"a": ran}, "a", missing) == {"a": ran}
    assert with_news({}, "a", missing) == {"a": missing}
    failed = CellResult("2026-11-27", "15.16", passed=6, failed=1)
    assert with_news({"a": ran}, "a", failed) == {"a": failed}


@pytest.mark.parametrize(
    ("cell", "code"),
    [(f"python-{sys.version_info[0]}.{sys.version_info[1]}", 0), ("python-3.1", 1), ("", 5)],
    ids=["its own version", "another version", "no cell"],
)
def test_a_run_proves_its_version_and_reports_it(tmp_path: Path, cell: str, code: int) -> None:
    report = tmp_path / "report.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    ended = subprocess.run(
        [*command, "tests/matrix"],
        cwd=ROOT,
        env=environment | {CELL_VARIABLE: cell},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == code, ended.stdout
    found = read_report(report, "2026-11-27")
    assert found.version == (platform.python_version() if cell else "")
    assert (found.passed, found.failed) == ((1, 0) if code == 0 else (0, 1))
