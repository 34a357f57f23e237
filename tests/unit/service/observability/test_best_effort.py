"""What only measures the work never ends it: what failed is logged once, and the next measurement is made."""

import pytest
from structlog.testing import capture_logs

from service.observability.best_effort import best_effort


def test_a_failure_is_logged_once_and_stays_with_the_measurement() -> None:
    @best_effort("a count in this test")
    def count(by: str) -> int:
        return int(by)

    with capture_logs() as logs:
        assert [count(by) for by in ("1", "none", "none", "2")] == [1, None, None, 2]
    assert [(line["event"], line["what"], line["log_level"]) for line in logs] == [
        ("metrics_failed", "a count in this test", "error")
    ]
    assert isinstance(logs[0]["exc_info"], ValueError)


def test_what_the_caller_wants_to_know_continues_to_it() -> None:
    with pytest.raises(ConnectionError), best_effort("a look in this test", OSError):
        raise ConnectionResetError
