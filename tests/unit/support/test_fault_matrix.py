"""A fault matrix is green only when every declared cell was played and held, and the whole was judged."""

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from tests.support.faults.matrix import HELD, NOT_RUN, Matrix, MatrixPage, MatrixRow

PAGE = MatrixPage("a-service.md", "# A service\n\n{date}: {count}. With {servers}.\n", "what fails")


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


def test_table_and_page_show_every_cell_and_what_was_not_played() -> None:
    matrix = declared()
    matrix.groups[0].rows[0].result = HELD
    console = Console(width=160, file=StringIO(), record=True)
    console.print(matrix.shown())
    for text in (console.export_text(), matrix.markdown()):
        assert "2 cells, 1 ok" in text
        assert "sink.during_copy, time 5" in text
        assert "not run" in text
        assert "what fails" in text
    assert "| in the middle of the rows' COPY |" in matrix.markdown()
    assert "Postgres 18.4" in matrix.markdown()


def test_only_a_green_matrix_is_written_to_its_page(tmp_path: Path) -> None:
    matrix = declared()
    assert matrix.write(tmp_path) == f"not written to {tmp_path / 'a-service.md'}: not every cell held"
    assert not list(tmp_path.iterdir())
    matrix.groups[0].verdict = HELD
    for row in matrix.rows:
        row.result = HELD
    assert matrix.write(tmp_path) == f"written to {tmp_path / 'a-service.md'}"
    assert (tmp_path / "a-service.md").read_text("utf-8") == matrix.markdown()


def test_a_fault_that_is_no_fault_point_says_itself_what_it_is() -> None:
    matrix = Matrix(PAGE)
    matrix.declare(
        "brokers", [MatrixRow("a transaction", "broker killed", "SIGKILL", detail="its records are sent")]
    )
    assert "| broker killed | its records are sent | SIGKILL |" in matrix.markdown()
