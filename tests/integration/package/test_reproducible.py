"""`make dist` makes the same bytes from the same commit, wherever, whenever and with whatever lies about."""

import hashlib
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.support.paths import ROOT


@pytest.fixture
def clones(tmp_path: Path) -> tuple[Path, Path]:
    """Two clones of this commit; in the second one files are younger, only for their owner, and one is not committed."""
    old_mask = os.umask(0o022)
    try:
        first, second = (tmp_path / name for name in ("first", "second"))
        clone(first)
        os.umask(0o077)
        clone(second)
    finally:
        os.umask(old_mask)
    (second / "spark_job" / "stray.py").write_text("left behind\n")
    return first, second


def clone(folder: Path) -> None:
    """Clone the checkout's commit."""
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(folder)], check=True, capture_output=True)


def dist(tree: Path, **variables: str) -> dict[str, str]:
    """Run `make dist` there with this environment's tools; return {name: SHA-256} of what it made."""
    tools = ["INSTALLED=", f"BIN={Path(sys.executable).parent}", "DIST=made"]
    done = subprocess.run(
        ["make", "dist", *tools],
        cwd=tree,
        env=os.environ | variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in (tree / "made").iterdir()}


def test_sdist_and_wheel_are_the_same_bytes_each_time_and_the_sdist_makes_that_wheel(
    clones: tuple[Path, Path], tmp_path: Path
) -> None:
    first, second = clones
    made = dist(first, TZ="UTC")
    assert made == dist(second, TZ="Asia/Kathmandu", SOURCE_DATE_EPOCH="1")
    (sdist,), (wheel,) = ((first / "made").glob(pattern) for pattern in ("*.tar.gz", "*.whl"))
    with tarfile.open(sdist) as content:
        content.extractall(tmp_path / "sdist", filter="data")
    (tree,) = (tmp_path / "sdist").iterdir()
    head = subprocess.run(
        ["git", "log", "-1", "--format=%ct"], cwd=first, capture_output=True, text=True, check=True
    )
    subprocess.run(
        [
            sys.executable,
            "-m",
            "hatchling",
            "build",
            "--target",
            "wheel",
            "--directory",
            str(tmp_path / "again"),
        ],
        cwd=tree,
        env=os.environ | {"SOURCE_DATE_EPOCH": head.stdout.strip()},
        check=True,
        capture_output=True,
    )
    assert (tmp_path / "again" / wheel.name).read_bytes() == wheel.read_bytes()
