"""What is fuzzed: each target takes any bytes, and fails where the product would."""

import ast
from collections.abc import Callable
from pathlib import Path

from tests.fuzz.accounting import check_log
from tests.fuzz.kept import check_cache
from tests.fuzz.logs import log_of
from tests.fuzz.records import check_record
from tests.fuzz.schemas import check_schema
from tests.fuzz.settings import check_settings
from tests.support.paths import ROOT

CORPUS = ROOT / "tests" / "fuzz" / "corpus"
"""A folder for each target: inputs that together reach everything that was ever reached, and those that once failed."""


def _check_events(data: bytes) -> None:
    check_log(log_of(data))


TARGETS: dict[str, Callable[[bytes], object]] = {
    "events": _check_events,
    "settings": check_settings,
    "records": check_record,
    "cache": check_cache,
    "schemas": check_schema,
}


def tokens_file(target: str) -> Path:
    """Return what a target's inputs are made of, as libFuzzer's option -dict reads it."""
    return ROOT / "tests" / "fuzz" / "tokens" / f"{target}.dict"


def tokens(target: str) -> list[bytes]:
    """Return the tokens of that file: libFuzzer's escapes are those of Python's bytes."""
    return [ast.literal_eval(f"b{line}") for line in tokens_file(target).read_text("ascii").splitlines()]


def corpus(target: str) -> list[Path]:
    """Return the kept inputs of a target."""
    return sorted((CORPUS / target).iterdir())
