"""Feeds the input while the demo watches: the sample clickstream and generated sessions, each in a thread."""

import threading
import time
from collections.abc import Sequence

from examples.clickstream.events import Record
from examples.clickstream.producer import TopicWriter, paced
from service.settings import KafkaSettings

_JOIN_TIMEOUT_S = 30.0


class Feed:
    """Plays records into a topic over about `seconds`. Stop it, or wait until it is done."""

    def __init__(self, kafka: KafkaSettings, topic: str, records: Sequence[Record], seconds: float) -> None:
        """`records` in time order, at least one."""
        self.total = len(records)
        self.written = 0
        self._stopped = threading.Event()
        self._error: BaseException | None = None
        span_s = (records[-1][2] - records[0][2]) / 1000
        self._thread = threading.Thread(
            target=self._run,
            args=(kafka, topic, records, span_s / seconds),
            name=f"feed-{topic}",
            daemon=True,
        )

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Stop early and wait for the thread. Harmless when it is done or was never started."""
        self._stopped.set()
        if self._thread.ident is not None:
            self._thread.join(_JOIN_TIMEOUT_S)

    def is_done(self) -> bool:
        """Whether Kafka has every record. Raises what the thread raised."""
        self.check()
        return self._thread.ident is not None and not self._thread.is_alive()

    def check(self) -> None:
        """Raise what the thread raised, if it did."""
        if self._error is not None:
            raise self._error

    def _run(self, kafka: KafkaSettings, topic: str, records: Sequence[Record], speed_up: float) -> None:
        try:
            with TopicWriter(kafka, topic) as writer:
                for group in paced(records, speed_up, clock=time.monotonic, wait=self._stopped.wait):
                    writer.write(group)
                    self.written += len(group)
        except BaseException as error:  # noqa: BLE001 - handed to the thread that watches
            self._error = error
