"""Decides how much the next transaction carries: half as much after a failure that the size may explain. Pure."""

from confluent_kafka import KafkaError

from service.kafka.client import UNAUTHORISED

# A single failure is not shown to the operator.
_FAILURES_SHOWN = 2
_OTHER_CAUSES = UNAUTHORISED | {
    KafkaError._SSL,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
}


def size_may_explain(code: int, took_s: float, timeout_s: float) -> bool:
    """Whether a transaction that failed with this code after `took_s` might have been committed if it had carried less.

    A transaction that outlasts its timeout looks fenced. Only the time distinguishes it from a transaction that another publisher fenced.
    """
    # [kafka.options] may let a message time out before its transaction does.
    return code not in _OTHER_CAUSES and (code == KafkaError._MSG_TIMED_OUT or took_s >= timeout_s / 4)


class TransactionSize:
    """The size of the next transaction: the limits of the settings; after each failed transaction, half of that transaction's size.

    A transaction that outlasts its timeout is lost completely, so over a slow link or under a quota only smaller ones succeed. The size
    grows by a quarter after each transaction that took less than a quarter of the timeout, and so settles well within the timeout.
    """

    def __init__(self, rows: int, bytes_: int, timeout_s: float) -> None:
        """`rows`, `bytes_`: the most that a transaction carries."""
        self._most_rows = self.rows = rows
        self._most_bytes = self.bytes = bytes_
        self._timeout_s = timeout_s
        self._failures = 0
        self._reason = ""

    @property
    def reason(self) -> str | None:
        """Why transactions are smaller than the settings allow, None if they are not, or after a single failure."""
        return self._reason if self._failures >= _FAILURES_SHOWN else None

    def failed(self, rows: int, bytes_: int, cause: str) -> None:
        """Record that a transaction with these numbers of rows and bytes failed, and that its size may explain the failure."""
        if rows > 0:
            self.rows = max(1, min(self.rows, rows) // 2)
            self.bytes = max(1, min(self.bytes, bytes_) // 2)
            self._failures += 1
            self._reason = (
                f"transactions are held to {self.rows} rows and {self.bytes} bytes, because the last {self._failures} that failed were "
                f"larger: {cause}. They grow again by themselves"
            )

    def committed(self, took_s: float) -> None:
        """Record that a transaction was committed after `took_s`."""
        if took_s < self._timeout_s / 4:
            self.rows = min(self._most_rows, self.rows + max(1, self.rows // 4))
            self.bytes = min(self._most_bytes, self.bytes + max(1_024, self.bytes // 4))
            if self.rows == self._most_rows and self.bytes == self._most_bytes:
                self._failures = 0
