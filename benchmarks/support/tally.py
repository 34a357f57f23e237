"""What a topic holds of the sessions that were to be sent: how many events are missing, there twice, out of order or altered."""

from dataclasses import dataclass, field

from benchmarks.support.outbox import EVENTS, TOPIC_ID, value_of

_ID = TOPIC_ID.encode()


@dataclass
class Tally:
    """Counts events by their id, `<topic id>/0/<end offset>/<index>`, as `benchmarks.support.outbox` makes them."""

    first: int
    """Number of the first session that is expected."""
    sessions: int
    checks_content: bool = True
    """False: keys and values are not compared, which takes most of the time; for a reader that must keep up."""
    delivered: int = 0
    """Different events so far."""
    duplicates: int = 0
    out_of_order: int = 0
    """Events that came for the first time after a later event of their key."""
    altered: int = 0
    """Events with another key or value than they were to have, or that were never to be sent."""
    _seen: bytearray = field(init=False, repr=False)
    _last: list[int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._seen = bytearray(self.sessions * EVENTS)
        self._last = [-1] * self.sessions

    @property
    def expected(self) -> int:
        """Events that were to be sent."""
        return self.sessions * EVENTS

    @property
    def missing(self) -> int:
        """Events that did not come."""
        return self.expected - self.delivered

    def add(self, event_id: bytes, key: bytes, value: bytes) -> bool:
        """Count an event; return whether it came for the first time."""
        position = self._position(event_id)
        if position is None:
            self.altered += 1
            return False
        session, index = divmod(position, EVENTS)
        if self._seen[position]:
            self.duplicates += 1
            return False
        self._seen[position] = 1
        self.delivered += 1
        number = self.first + session
        if self.checks_content and (key != b"session-%010d" % number or value != value_of(number, index)):
            self.altered += 1
        if index < self._last[session]:
            self.out_of_order += 1
        else:
            self._last[session] = index
        return True

    def _position(self, event_id: bytes) -> int | None:
        """Where an event stands among the expected; None for any other id."""
        try:
            topic, partition, end, index = event_id.split(b"/")
            session, rest = divmod(int(end) - 101, 102)
            at = int(index)
        except ValueError:
            return None
        is_expected = self.first <= session < self.first + self.sessions and 0 <= at < EVENTS
        if topic != _ID or partition != b"0" or rest or not is_expected:
            return None
        return (session - self.first) * EVENTS + at
