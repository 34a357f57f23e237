"""`make test-matrix`: a part of the tests on each supported version; names what ran, and writes docs/versions.md.

python -m tests.matrix [CELL ...]
"""

import argparse
import os
import subprocess
import sys
from datetime import UTC, datetime

from tests.matrix.cells import CELLS, Cell
from tests.matrix.installations import FOLDER, NotHereError
from tests.matrix.results import CellResult, load, read_report, save, with_news
from tests.support.paths import ROOT
from tests.support.servers.choice import CELL_VARIABLE


def run(cell: Cell) -> CellResult:
    """Run the cell's tests to their end; what pytest says goes to the terminal."""
    date = f"{datetime.now(UTC):%Y-%m-%d}"
    FOLDER.mkdir(parents=True, exist_ok=True)
    report = FOLDER / f"{cell.name}.xml"
    report.unlink(missing_ok=True)
    try:
        chosen = cell.environment()
        python = cell.python() if cell.python else sys.executable
    except NotHereError as error:
        return CellResult(date, not_run=str(error))
    except subprocess.CalledProcessError as error:
        print(f"{cell.name}: {error}", file=sys.stderr)
        return CellResult(date, failed=1)
    command = [str(python), "-m", "pytest", "-q", f"--junitxml={report}", *cell.part]
    variables = {CELL_VARIABLE: cell.name, "PYTHONPATH": str(ROOT)}
    subprocess.run(command, cwd=ROOT, env=os.environ | chosen | variables, check=False)
    return read_report(report, date)


def main() -> None:
    """Run the cells that are named, or all. Ends with 1 where a test failed; a version that is not here is no failure."""
    names = {cell.name: cell for cell in CELLS}
    parser = argparse.ArgumentParser(prog="python -m tests.matrix", description=main.__doc__)
    parser.add_argument("cells", nargs="*", metavar="CELL", help=f"of {', '.join(names)}")
    wanted = parser.parse_args().cells or list(names)
    if unknown := [name for name in wanted if name not in names]:
        parser.error(f"no cell {', '.join(unknown)}; there are {', '.join(names)}")
    found: dict[str, CellResult] = {}
    for name in wanted:
        print(f"\n{name}: {' '.join(names[name].part)}", flush=True)
        found[name] = run(names[name])
        save(ROOT, with_news(load(ROOT), name, found[name]))
    print()
    for name, result in found.items():
        print(f"{name:14} {result.version:10} {result.shown()}")
    sys.exit(any(result.failed for result in found.values()))


if __name__ == "__main__":
    main()
