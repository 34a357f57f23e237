"""Honours Retry-After, which the client ignores."""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, TypeVar

from service.formats.registry.answers import read_bounded
from service.formats.writer import RegistryAwayError

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import SchemaRegistryClient

Answer = TypeVar("Answer")

_MOST_PAUSE_S = 10.0
"""Greatest Retry-After, in seconds, that a request waits for; a longer one is an outage."""
_MOST_PAUSES = 3
_LONGEST_OUTAGE_S = 3_600.0
"""Greatest outage by Retry-After, in seconds: its date may come from another clock."""


class _PauseError(Exception):
    """The registry asks for a pause."""


class Pauses:
    """The pauses that one registry asks for. Not thread-safe."""

    def __init__(self, where: str) -> None:
        """`where`: the registry's url."""
        self._where = where
        self._until = 0.0

    def watch(self, client: "SchemaRegistryClient") -> None:
        """Read each answer before the client repeats its request."""
        client._rest_client.session.event_hooks["response"] = [self._look]

    def asked(self, ask: Callable[[], Answer]) -> Answer:
        """Return the answer, after pauses. Raises RegistryAwayError if the registry asks for a long pause, or for too many."""
        for _ in range(_MOST_PAUSES):
            left = self._until - time.monotonic()
            if left > _MOST_PAUSE_S:
                break
            time.sleep(max(0.0, left))
            try:
                return ask()
            except _PauseError:
                continue
        left = max(0.0, self._until - time.monotonic())
        raise RegistryAwayError(
            f"the schema registry at {self._where} wants no request for {left:.0f} seconds"
        )

    def _look(self, response: Any) -> None:
        given = response.headers.get("Retry-After")
        if response.status_code in (429, 503) and given is not None:
            pause_s = seconds(given)
            if pause_s is not None:
                self._until = time.monotonic() + pause_s
                raise _PauseError
        read_bounded(response)


def seconds(retry_after: str) -> float | None:
    """Return the seconds of a Retry-After, which is a number or a date; None if it is neither."""
    try:
        found = float(retry_after) if retry_after.isdecimal() else _until(parsedate_to_datetime(retry_after))
    except (ValueError, OverflowError):  # also for dates out of datetime's range
        return None
    return min(max(0.0, found), _LONGEST_OUTAGE_S)


def _until(at: datetime) -> float:
    return (at.astimezone(UTC) - datetime.now(UTC)).total_seconds()
