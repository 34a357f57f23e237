"""No password of a login stays where statements are kept: psql's history, and the log of the server."""

import re

import pytest

from tests.support.paths import ROOT

_TEXTS = [
    path
    for folder, pattern in (
        ("docs", "*.md"),
        ("db", "*.md"),
        ("publisher", "*.py"),
        ("service", "*.py"),
        ("spark_job", "*.py"),
    )
    for path in (ROOT / folder).rglob(pattern)
]


def test_nobody_is_told_to_write_a_password_into_a_statement() -> None:
    told = re.compile(r"\bPASSWORD\s+'", re.IGNORECASE)
    assert [str(path.relative_to(ROOT)) for path in _TEXTS if told.search(path.read_text("utf-8"))] == []


@pytest.mark.parametrize(
    "setting", ["log_statement = none", "log_min_error_statement = panic", "log_min_duration_statement = -1"]
)
def test_the_server_logs_no_statement_that_sets_a_password(setting: str) -> None:
    """As it otherwise does when one fails, for instance while the disk is full."""
    script = (ROOT / "deploy/postgres/logins.sh").read_text("utf-8")
    assert f"\nSET {setting};\n" in script[: script.index(" PASSWORD :'")]
