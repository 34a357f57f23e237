"""Settings that contradict each other are refused with their names."""

from typing import Any

import pytest

from spark_job.sessions.settings import AssemblySettings


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"start": "a", "end": "a"}, "must differ"),
        ({"start": "a", "entry": ("a", "b")}, "must differ"),
        ({"timeout_ms": 0}, "session.timeout_ms must be at least 1, not 0"),
        ({"grace_ms": -1}, "session.grace_ms"),
        ({"max_events": 0}, "session.max_events"),
        ({"type_path": ()}, "at least one field"),
        ({"type_path": ("data",), "key_path": ("data", "key")}, "both a value and the parent"),
        ({"time_path": ("event_type",), "time_format": "epoch_ms"}, "share its field"),
    ],
)
def test_contradicting_settings_are_refused(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        AssemblySettings(**wrong)
