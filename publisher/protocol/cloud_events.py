"""Makes the headers of a CloudEvent, in the binary content mode of the Kafka protocol binding 1.0.

https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/bindings/kafka-protocol-binding.md §3.2: each attribute is a header `ce_<name>`
in UTF-8, and `datacontenttype` is the header `content-type`. The record's value is the event's data, unchanged; without a value there is
no data.
"""

from datetime import UTC, datetime, timedelta
from typing import NamedTuple

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_YEAR_10000_MS = 253_402_300_800_000


class CloudEvents(NamedTuple):
    """The attributes, from the settings. `{topic}` in `source` and `type` stands for the output topic."""

    source: str
    type: str
    content_type: str

    def headers(
        self, topic: str, event_id: str, subject: bytes, timestamp_ms: int | None, *, has_data: bool
    ) -> list[tuple[str, bytes]]:
        """Return the headers of one record.

        `timestamp_ms`: None if the event has no time of its own. The time is then left out, as it is for a year that RFC 3339 cannot
        express.
        """
        found = [
            ("ce_specversion", b"1.0"),
            ("ce_id", event_id.encode()),
            ("ce_source", self.source.replace("{topic}", topic).encode()),
            ("ce_type", self.type.replace("{topic}", topic).encode()),
            ("ce_subject", subject),
        ]
        if timestamp_ms is not None and 0 <= timestamp_ms < _YEAR_10000_MS:
            found.append(("ce_time", _rfc3339(timestamp_ms)))
        if has_data:
            found.append(("content-type", self.content_type.encode()))
        return found


def _rfc3339(timestamp_ms: int) -> bytes:
    time = _EPOCH + timedelta(milliseconds=timestamp_ms)
    return (time.strftime("%Y-%m-%dT%H:%M:%S") + f".{timestamp_ms % 1000:03}Z").encode()
