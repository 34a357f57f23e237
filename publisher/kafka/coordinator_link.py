"""Tells from the log of a lane's producer whether it may have sent a commit twice to the transaction coordinator."""

import logging

# librdkafka's name for its connection to the coordinator of a transactional id.
_COORDINATOR = "TxnCoordinator"
# The connection failed, or a request was not answered in time and is sent again.
_BROKEN = ("FAIL", "REQTMOUT")


class CoordinatorLink(logging.Handler):
    """The state of a producer's connection to its transaction coordinator, according to librdkafka's log. Give `logger` to the producer.

    When the connection breaks, librdkafka sends an unanswered commit again by itself, in the same producer epoch
    (rd_kafka_txn_handle_EndTxn). The first request may still be delayed in the network or in the broker's queue. Within one producer epoch
    nothing distinguishes that request from the commit of a later transaction, so it could commit half of the later transaction.
    `init_transactions` begins a new producer epoch, in which the broker refuses the delayed request.

    Only the log shows this: librdkafka does not call the error callback when the other side closes the connection.
    """

    def __init__(self) -> None:
        super().__init__()
        self.has_broken = False
        self.logger = logging.Logger("publisher.librdkafka")
        self.logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Check a line of the log, and drop it: the lane logs each change of state once."""
        text = record.getMessage()
        self.has_broken = self.has_broken or (text.startswith(_BROKEN) and _COORDINATOR in text)

    def forget(self) -> None:
        """Start over after `init_transactions`: no commit was sent in the new producer epoch, so earlier breaks do not matter.

        Without this, a host name whose first address does not answer would end each tenure after one transaction.
        """
        self.has_broken = False
