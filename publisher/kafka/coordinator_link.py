"""Tells whether a lane's producer may have sent a commit twice, by the log of its connection to the coordinator."""

import logging

# What librdkafka calls its connection to the coordinator of a transactional id.
_COORDINATOR = "TxnCoordinator"
# The connection failed, or a request was not answered in time and is asked again.
_BROKEN = ("FAIL", "REQTMOUT")


class CoordinatorLink(logging.Handler):
    """A producer's connection to its transaction coordinator, as far as librdkafka's log tells; `logger` is for the producer.

    When it breaks, librdkafka asks for an unanswered commit again by itself, in the same producer epoch (rd_kafka_txn_handle_EndTxn).
    The first request may still be on its way, held up in the network or in the broker's queue, and in that producer epoch nothing
    distinguishes it from the commit of a later transaction: it would commit half of that one. `init_transactions` begins a new producer
    epoch, in which the broker refuses it.

    The log is the only witness: the error callback is not called for a connection that the other side has closed.
    """

    def __init__(self) -> None:
        super().__init__()
        self.has_broken = False
        self.logger = logging.Logger("publisher.librdkafka")
        self.logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Take a line of the log; it goes nowhere else, since the lane logs each change of state once."""
        text = record.getMessage()
        self.has_broken = self.has_broken or (text.startswith(_BROKEN) and _COORDINATOR in text)

    def forget(self) -> None:
        """Start over after `init_transactions`: no commit of this producer epoch was sent yet, whatever became of earlier connections.

        Else a name with several addresses, the first of them dead, would end each tenure after one transaction.
        """
        self.has_broken = False
