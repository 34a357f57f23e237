"""Read the newest records of the input backwards. Each step covers four times as many offsets as the last one, within `max_bytes`."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from service.kafka.reading import NamedPartition
from service.settings import KafkaSettings
from spark_job.input.reading import NoAnswerError, committed_ranges

_FIRST = 64
"""Number of records in the first step, over all partitions."""
_GROWTH = 4


@dataclass(frozen=True)
class ReadLimits:
    """The limits of a trial's reading."""

    max_bytes: int
    timeout_s: float


class NewestRecords:
    """Reads as a consumer without a group: no other consumer is disturbed, and no offset is committed."""

    def __init__(
        self,
        kafka: KafkaSettings,
        starts: Mapping[NamedPartition, int],
        ends: Mapping[NamedPartition, int],
        limits: ReadLimits,
        wholes: Mapping[NamedPartition, int] | None = None,
    ) -> None:
        """`starts`: the first offset to read of each partition; `ends`: the offset to read up to, at most the end of its committed records.

        `wholes`: for each partition, an offset below which no session that is asked for begins; None: 0 for all.
        """
        self._kafka = kafka
        self._starts = starts
        self._low = dict(ends)
        self._limits = limits
        self._wholes = wholes or {}
        self._width = -(-_FIRST // max(1, len(ends)))
        self._until = time.monotonic() + limits.timeout_s
        self.records: dict[NamedPartition, list[Any]] = {place: [] for place in ends}
        """The records read of each partition, in offset order."""
        self.n_records = 0
        self.n_bytes = 0
        """Bytes of the values of all records read."""
        self.limited_by: str | None = None
        """The limit that ended the reading; None while none has."""

    def extend(self) -> bool:
        """Read one more step; return False if no earlier record is left, or a limit is reached.

        Raises RecordsGoneError if Kafka deletes records meanwhile, NoAnswerError, KafkaException.
        """
        width = self._fitting()
        self._width *= _GROWTH
        ranges = {
            place: (max(self._starts[place], low - width), low)
            for place, low in self._low.items()
            if low > self._starts[place]
        }
        if ranges and width < 1:
            self.limited_by = f"--max-bytes {self._limits.max_bytes}"
        if not ranges or self.limited_by is not None:
            return False
        found: dict[NamedPartition, list[Any]] = {place: [] for place in ranges}
        try:
            for some in committed_ranges(
                self._kafka.client(), ranges, self._kafka.request_timeout_s, self._is_late
            ):
                for message in some:
                    found[message.topic(), message.partition()].append(message)
                    self.n_bytes += len(message)
                if self.n_bytes > self._limits.max_bytes:
                    self.limited_by = f"--max-bytes {self._limits.max_bytes}"
                    return False
                if self._is_late():
                    break
        except NoAnswerError:
            if not self._is_late():
                raise
        if self._is_late():
            self.limited_by = f"--timeout {self._limits.timeout_s:g}"
            return False
        for place, messages in found.items():
            self.records[place] = messages + self.records[place]
            self._low[place] = ranges[place][0]
            self.n_records += len(messages)
        return True

    def is_whole(self, place: NamedPartition) -> bool:
        """Return whether the records read of a partition include the beginning of each session that is asked for."""
        return self._low[place] == self._wholes.get(place, 0)

    def _is_late(self) -> bool:
        return time.monotonic() > self._until

    def _fitting(self) -> int:
        """Return how many offsets of each partition to read next, judging by the records so far."""
        if not self.n_records:
            return self._width
        room = (self._limits.max_bytes - self.n_bytes) * self.n_records // max(1, self.n_bytes)
        return min(self._width, room // len(self._low))
