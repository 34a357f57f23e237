"""A fault matrix is green only when every declared cell was played and held, and the whole was judged."""

import json
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from tests.support.faults import job_cells, publisher_cells
from tests.support.faults.matrix import HELD, NOT_RUN, Matrix, MatrixPage, MatrixRow, dumped, rendered
from tests.support.paths import ROOT

PAGE = MatrixPage("a-service.md", "faults/a-service.json", "# A service\n\n{run}. {data}\n", "what fails")


def declared() -> Matrix:
    """One group of two cells, not played yet."""
    matrix = Matrix(PAGE, servers={"Postgres": "18.4"})
    matrix.declare(
        "a service, killed",
        [
            MatrixRow("a batch", "sink.after_copy", "kill"),
            MatrixRow("a batch", "sink.during_copy", "kill", 5),
        ],
    )
    return matrix


@pytest.mark.parametrize(
    ("verdict", "results", "green"),
    [
        (f"{HELD}: 7 sessions", [HELD, HELD], True),
        (f"{HELD}: 7 sessions", [HELD, NOT_RUN], False),
        (f"{HELD}: 7 sessions", [HELD, "FAILED: AssertionError"], False),
        (NOT_RUN, [HELD, HELD], False),
    ],
)
def test_only_a_matrix_whose_every_cell_and_whole_held_is_green(
    verdict: str, results: list[str], green: bool
) -> None:
    matrix = declared()
    matrix.groups[0].verdict = verdict
    for row, result in zip(matrix.rows, results, strict=True):
        row.result = result
    assert matrix.is_green is green
    assert not Matrix(PAGE).is_green


def test_the_table_shows_every_cell_and_what_was_not_played() -> None:
    matrix = declared()
    matrix.groups[0].rows[0].result = HELD
    console = Console(width=160, file=StringIO(), record=True)
    console.print(matrix.shown())
    text = console.export_text()
    assert "2 cells, 1 ok" in text
    assert "sink.during_copy, time 5" in text
    assert "not run" in text
    assert "what fails" in text


def test_only_a_green_matrix_is_written_and_its_data_have_every_cell(tmp_path: Path) -> None:
    matrix = declared()
    page, data = tmp_path / "a-service.md", tmp_path / "faults" / "a-service.json"
    assert matrix.write(tmp_path, "c0ffee") == f"not written to {page}: not every cell held"
    assert not list(tmp_path.iterdir())
    matrix.groups[0].verdict = HELD
    for row in matrix.rows:
        row.result = HELD
    assert matrix.write(tmp_path, "c0ffee") == f"written to {page} and {data}"
    record = json.loads(data.read_text("utf-8"))
    (group,) = record["groups"]
    assert [cell["fault"] for cell in group["cells"]] == ["sink.after_copy", "sink.during_copy, time 5"]
    assert group["cells"][1]["where"] == "in the middle of the rows' COPY"
    text = page.read_text("utf-8")
    assert f"2 cells, 2 ok; {record['date']}, commit c0ffee, Postgres 18.4, Python" in text
    assert "| a service, killed | kill | 2 | ok |" in text


def test_data_have_a_line_for_each_cell_and_read_back_as_they_were() -> None:
    record = declared().record("c0ffee")
    text = dumped(record)
    assert json.loads(text) == record
    assert sum(line.startswith('{"situation"') for line in text.splitlines()) == 2


def test_a_fault_that_is_no_fault_point_says_itself_what_it_is() -> None:
    matrix = Matrix(PAGE)
    matrix.declare(
        "brokers", [MatrixRow("a transaction", "broker killed", "SIGKILL", detail="its records are sent")]
    )
    (cell,) = matrix.record("c0ffee")["groups"][0]["cells"]
    assert (cell["fault"], cell["where"], cell["action"]) == (
        "broker killed",
        "its records are sent",
        "SIGKILL",
    )


@pytest.mark.parametrize("page", [job_cells.PAGE, publisher_cells.PAGE], ids=lambda page: page.file)
def test_the_committed_page_is_rendered_from_the_committed_data(page: MatrixPage) -> None:
    text = (ROOT / "docs" / page.data).read_text("utf-8")
    record = json.loads(text)
    assert dumped(record) == text
    assert rendered(page, record) == (ROOT / "docs" / page.file).read_text("utf-8")
    assert all(cell["result"] == HELD for group in record["groups"] for cell in group["cells"])
