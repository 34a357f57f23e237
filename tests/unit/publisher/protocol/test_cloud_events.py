"""CloudEvents in the binary content mode: each record describes itself in headers."""

from datetime import datetime

import pytest

from publisher.protocol.records import NO_EXTRAS, ExtraHeaders, Row, is_plain, records
from service.settings import PublisherSettings

ROW = Row(
    batch_id=4,
    session_key="schlüssel",
    revision=0,
    session_topic_ids=["T"],
    session_partitions=[3],
    session_ends=[99],
    session_outputs=[2],
    topics=["orders", "clicks"],
    values=[b"{}", None],
    keys=None,
    headers=None,
    partitions=None,
    timestamps_ms=[1_779_999_999_007, None],
)
EXTRAS = ExtraHeaders.of(
    PublisherSettings(
        cloudevents=True, cloudevents_source="/shop/{topic}", cloudevents_type="com.example.{topic}.v1"
    )
)


def test_a_record_carries_every_attribute_and_a_tombstone_has_no_content_type() -> None:
    first, second = records(ROW, EXTRAS)
    assert first.headers == [
        ("outbox-id", b"T/3/99/0"),
        ("ce_specversion", b"1.0"),
        ("ce_id", b"T/3/99/0"),
        ("ce_source", b"/shop/orders"),
        ("ce_type", b"com.example.orders.v1"),
        ("ce_subject", "schlüssel".encode()),
        ("ce_time", b"2026-05-28T20:26:39.007Z"),
        ("content-type", b"application/json"),
    ]
    names = [name for name, _ in second.headers]
    assert names == ["outbox-id", "ce_specversion", "ce_id", "ce_source", "ce_type", "ce_subject"]


@pytest.mark.parametrize(
    ("at", "time"),
    [
        (datetime.fromisoformat("9999-12-31T23:59:59.999+00:00"), b"9999-12-31T23:59:59.999Z"),
        (datetime.fromisoformat("9999-12-31T23:59:59.9999+00:00"), None),
        (datetime.fromisoformat("9999-12-31T23:59:59-14:00"), None),
        (datetime.fromisoformat("1970-01-01T00:00:00.001+00:00"), b"1970-01-01T00:00:00.001Z"),
    ],
)
def test_a_time_that_an_event_may_name_stops_no_lane(at: datetime, time: bytes | None) -> None:
    row = ROW._replace(timestamps_ms=[round(at.timestamp() * 1000), None])
    first, _ = records(row, EXTRAS)
    assert dict(first.headers).get("ce_time") == time


def test_source_and_id_are_distinct_for_each_revision_of_an_event_and_the_same_in_every_batch() -> None:
    def ids(row: Row) -> list[str | bytes | None]:
        return [dict(record.headers)["ce_id"] for record in records(row, EXTRAS)]

    assert ids(ROW._replace(batch_id=77)) == ids(ROW) == [b"T/3/99/0", b"T/3/99/1"]
    assert ids(ROW._replace(revision=2)) == [b"T/3/99/0/2", b"T/3/99/1/2"]


def test_what_the_transform_sets_itself_wins() -> None:
    own = [[["ce_type", "mine"], ["Content-Type", "text/plain"], ["traceparent", "00-ab-cd-01"]], None]
    first, second = records(ROW._replace(headers=own), EXTRAS)
    found = [(name.lower(), value) for name, value in first.headers]
    assert [value for name, value in found if name == "ce_type"] == [b"mine"]
    assert [value for name, value in found if name == "content-type"] == [b"text/plain"]
    assert ("traceparent", b"00-ab-cd-01") in found
    assert dict(second.headers)["ce_type"] == b"com.example.clicks.v1"


def test_switched_off_it_costs_the_plain_path_nothing_and_switched_on_no_row_is_plain() -> None:
    plain = ROW._replace(topics=["out", "out"], timestamps_ms=None)
    assert is_plain(plain, NO_EXTRAS)
    assert is_plain(plain, ExtraHeaders.of(PublisherSettings()))
    assert not is_plain(plain, EXTRAS)
    assert all(len(record.headers) == 1 for record in records(plain))
