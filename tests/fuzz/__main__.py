"""`python -m tests.fuzz`: coverage-guided fuzzing with Atheris, in the checks that the kept corpus goes through in the tests."""

import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from tests.fuzz.targets import CORPUS, tokens_file
from tests.support.paths import ROOT

_SHARES = {"events": 0.45, "settings": 0.15, "records": 0.08, "cache": 0.12, "schemas": 0.2}
"""Of the time."""


def main(
    minutes: Annotated[float, typer.Option(min=0.1, help="Minutes for all targets together.")] = 10.0,
    target: Annotated[list[str] | None, typer.Option(help=f"Only these: {', '.join(_SHARES)}.")] = None,
) -> None:
    """Fuzz; what reaches something new joins tests/fuzz/corpus. An input that fails is kept in build/fuzz, and the exit code is 1."""
    chosen = {name: _SHARES[name] for name in target or _SHARES}
    failed = [name for name in chosen if not _fuzz(name, minutes * 60 * chosen[name] / sum(chosen.values()))]
    if failed:
        print(
            f"failed: {', '.join(failed)}. The inputs are {ROOT}/build/fuzz/*/crash-* (or timeout-*, oom-*)"
        )
        sys.exit(1)


def _fuzz(name: str, seconds: float) -> bool:
    work, kept = ROOT / "build" / "fuzz" / name, CORPUS / name
    found = work / "found"
    found.mkdir(parents=True, exist_ok=True)
    common = ["-max_len=4096", f"-artifact_prefix={work}/", f"-dict={tokens_file(name)}"]
    # Atheris itself grows with each run; the checks alone do not.
    limits = [
        f"-max_total_time={round(seconds)}",
        "-timeout=60",
        "-rss_limit_mb=6144",
        "-print_final_stats=1",
    ]
    ended = _run(name, *common, *limits, found, kept)
    _run(name, "-merge=1", *common, kept, found)
    return ended == 0


def _run(name: str, *options: str | Path) -> int:
    return subprocess.run([sys.executable, "-m", "tests.fuzz.target", name, *map(str, options)]).returncode


if __name__ == "__main__":
    typer.run(main)
