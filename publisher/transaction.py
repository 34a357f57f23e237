"""One Kafka transaction: every row's records, then the progress record, all or nothing."""

import threading
from collections.abc import Callable, Sequence

from confluent_kafka import KafkaError, KafkaException, Producer

from db.fault_points import reach
from publisher.deliveries import Tally
from publisher.outflow import Outflow
from publisher.progress import Progress
from publisher.records import SENT_NOW, DeliveryReport, ExtraHeaders, Row, is_plain, produce_plain, records
from publisher.refusals import RECORD_ERRORS, Refusal


class RecordRefusedError(Exception):
    """Kafka refused a record for itself. `rows`: what to park, (batch_id, session_key) -> why; empty where unknown.

    `code` is the Kafka error's, `sent` how many rows the transaction held.
    """

    def __init__(self, cause: KafkaError, rows: dict[tuple[int, str], Refusal], sent: int) -> None:
        super().__init__(cause.str())
        self.code = cause.code()
        self.rows = rows
        self.sent = sent


class Transaction:
    """A transaction on an initialised producer. Its outcome is unknown after any exception: discard the producer then."""

    def __init__(
        self, producer: Producer, headers: ExtraHeaders, stop: threading.Event, *, one_by_one: bool
    ) -> None:
        """`one_by_one`: the producer's batches hold one record, and each is watched, to find the one that is refused."""
        self._producer = producer
        self._headers = headers
        self._outflow = Outflow(producer, stop)
        self._one_by_one = one_by_one
        self.tally = Tally()

    def run(
        self,
        rows: Sequence[Row],
        progress_topic: str,
        progress: Progress,
        meanwhile: Callable[[], None] = lambda: None,
    ) -> None:
        """Produce and commit. `meanwhile` is called before the wait for Kafka begins, and must not wait itself.

        Raises RecordRefusedError, KafkaException, and what `meanwhile` raises.
        """
        producer = self._producer
        try:
            producer.begin_transaction()
            reach("transaction.after_begin")
            for row in rows:
                reach("transaction.during_produce")
                if not self._one_by_one and is_plain(row, self._headers):
                    self._send_plain(row)
                else:
                    self._send(row)
            reach("transaction.before_progress")
            # Last, so that whoever sees it sees every event before it.
            self._outflow.produce(progress_topic, progress.encode(), progress.key(), progress.lane)
            reach("transaction.before_flush")
            meanwhile()
            self._outflow.flush()
            reach("transaction.before_commit")
            producer.commit_transaction()
            # What librdkafka logged during the commit (link.py) is served before the next transaction begins.
            producer.poll(0)
            reach("transaction.after_commit")
        except KafkaException as error:
            # Once a transaction has failed, later calls complain about its state instead of the cause.
            cause = self._outflow.failure() or error.args[0]
            if cause.code() not in RECORD_ERRORS:
                raise KafkaException(cause) from error
            self._outflow.serve_reports()
            refused = {
                row: Refusal(RECORD_ERRORS[code], f"Kafka refused it: {text}")
                for row, (code, text) in self.tally.refused.items()
            }
            raise RecordRefusedError(cause, refused, len(rows)) from error

    def _send_plain(self, row: Row) -> None:
        reached = [0]
        while True:
            try:
                produce_plain(self._producer.produce, row, reached[0], reached, self.tally.report)
                return
            except BufferError:
                self._outflow.wait_for_room()

    def _send(self, row: Row) -> None:
        report: DeliveryReport = self.tally.report
        for record in records(row, self._headers):
            if self._one_by_one:
                report = self.tally.watch(
                    row.batch_id, row.session_key, own_timestamp=record.timestamp_ms != SENT_NOW
                )
            self._outflow.produce(
                record.topic,
                record.value,
                record.key,
                record.partition,
                report,
                None,
                record.timestamp_ms,
                record.headers,
            )
