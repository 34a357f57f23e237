"""The benchmark of the formats measures the same events in each: what it writes is what is read."""

import pytest

from benchmarks.formats import ENTRIES, as_table, events, measured, ways
from service.formats.values import decoded
from spark_job.sessions.settings import AssemblySettings


def test_every_format_is_measured_and_shown() -> None:
    costs = measured(sessions=2, calls=1)
    assert list(costs) == list(ways()[0])
    for name, cost in costs.items():
        assert cost.assembled_us > 0, name
        assert (cost.of_values_us is None) == (name == "bytes"), name
    assert costs["bytes"].event_bytes == costs["json"].event_bytes
    assert costs["json-schema"].event_bytes == costs["json"].event_bytes + 5
    assert costs["avro"].event_bytes < costs["json"].event_bytes
    lines = as_table(costs).splitlines()
    assert len(lines) == 2 + len(costs)
    assert lines[2].startswith("| json | ")
    assert " | 1.00 | " in lines[2]


@pytest.mark.parametrize("name", ["json-schema", "avro", "protobuf"])
def test_a_value_is_the_event(name: str) -> None:
    found, schemas = ways()
    for event in events(1):
        assert decoded(found[name].encode(event), schemas) == event


def test_a_session_that_is_not_whole_is_no_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.formats.events", lambda sessions: events(sessions)[: ENTRIES * sessions])
    with pytest.raises(AssertionError, match="every record is an event of a session"):
        measured(sessions=2, calls=1)


def test_key_and_type_of_bytes_come_from_the_record() -> None:
    assert ways()[0]["bytes"].rules == AssemblySettings(key_path=None, type_path=None, format="bytes")
