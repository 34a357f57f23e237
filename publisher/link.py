"""Whether a lane's producer may have sent a request twice."""

from confluent_kafka import KafkaError


class Link:
    """A producer's connections to Kafka, as far as its error callback tells.

    When one breaks, librdkafka asks for an unanswered commit again by itself, in the same epoch (rd_kafka_txn_handle_EndTxn). The first
    request may still be on its way, held up in the network or in the broker's queue, and in that epoch nothing tells it from the commit
    of a later transaction: it would commit the half of one. A new epoch, which `init_transactions` begins, makes the broker refuse it.
    """

    def __init__(self) -> None:
        self.has_broken = False

    def report(self, error: KafkaError) -> None:
        """Take a report of librdkafka. Every kind counts: a producer is soon made anew."""
        self.has_broken = True
