"""What transforms see is read-only, exact and cheap."""

from datetime import UTC, datetime

import pytest

from spark_job.api import Event, OutputEvent, utc


def test_an_event_decodes_its_value_once() -> None:
    event = Event("entry_event", b'{"a": 1}', 1500, 7)
    assert event.value == {"a": 1}
    assert event.value is event.value
    assert event.timestamp == datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC)
    assert (event.type, event.raw, event.offset) == ("entry_event", b'{"a": 1}', 7)


@pytest.mark.parametrize("name", ["type", "value", "raw", "timestamp", "offset", "other"])
def test_an_event_cannot_be_changed(name: str) -> None:
    with pytest.raises(AttributeError):
        setattr(Event.of("entry_event", {}), name, None)


@pytest.mark.parametrize("name", ["topic", "value", "key", "headers", "partition", "timestamp", "other"])
def test_an_output_event_cannot_be_changed(name: str) -> None:
    with pytest.raises(AttributeError):
        setattr(OutputEvent("t", b""), name, None)


def test_equal_events_are_equal_however_their_time_was_given() -> None:
    by_number, by_time = Event("t", b"{}", 1, 2), Event("t", b"{}", utc(1), 2)
    assert by_number == by_time
    assert hash(by_number) == hash(by_time)
    assert by_number != Event("t", b"{}", 2, 2)
    assert OutputEvent("t", {"a": 1}, headers=[("h", "v")]) == OutputEvent("t", {"a": 1}, None, (("h", "v"),))
    assert OutputEvent("t", None) != OutputEvent("t", b"")


@pytest.mark.guarantee(5)
def test_times_are_exact_to_the_millisecond_over_the_whole_range() -> None:
    assert utc(-62_135_596_800_000) == datetime.min.replace(tzinfo=UTC)
    assert utc(253_402_300_799_999).isoformat() == "9999-12-31T23:59:59.999000+00:00"
