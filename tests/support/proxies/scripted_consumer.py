"""Stand-ins for what a consumer of librdkafka gives to `service.kafka.reading`."""

from collections.abc import Iterable
from typing import Any

from confluent_kafka import KafkaError

EOF = KafkaError._PARTITION_EOF


class Answer:
    """A record, or an error at an offset."""

    def __init__(
        self,
        offset: int,
        code: int | None = None,
        *,
        partition: int = 0,
        time_ms: int = 0,
        retriable: bool = False,
        value: bytes = b"",
        key: bytes = b"",
    ) -> None:
        self._offset, self._partition, self._time_ms = offset, partition, time_ms
        self._key, self._value = key, value
        self._error = None if code is None else KafkaError(code, "said so", retriable=retriable)

    def topic(self) -> str:
        return "in"

    def partition(self) -> int:
        return self._partition

    def offset(self) -> int:
        return self._offset

    def key(self) -> bytes:
        return self._key

    def value(self) -> bytes:
        return self._value

    def error(self) -> KafkaError | None:
        return self._error

    def timestamp(self) -> tuple[int, int]:
        return 1, self._time_ms


class ScriptedConsumer:
    """Gives some answers, one after the other, and then nothing."""

    def __init__(self, answers: Iterable[Answer]) -> None:
        self.options: dict[str, Any] = {}
        self.assigned: list[tuple[str, int, int]] = []
        self.left: list[tuple[str, int]] = []
        self.closed = False
        self._answers = iter(answers)

    def __call__(self, options: dict[str, Any]) -> "ScriptedConsumer":
        self.options = options
        return self

    def assign(self, partitions: list[Any]) -> None:
        self.assigned += [(each.topic, each.partition, each.offset) for each in partitions]

    def assignment(self) -> list[Any]:
        return []

    def incremental_unassign(self, partitions: list[Any]) -> None:
        self.left += [(each.topic, each.partition) for each in partitions]

    def poll(self, _timeout: float) -> Answer | None:
        return next(self._answers, None)

    def consume(self, _count: int, timeout: float) -> list[Answer]:
        return []

    def close(self) -> None:
        self.closed = True
