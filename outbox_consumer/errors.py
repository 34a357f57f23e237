"""The exceptions that end the loop. Start it again once the cause is gone: it continues at the stored positions."""


class ConsumerError(Exception):
    """The loop cannot continue without a person."""


class SettingsError(ConsumerError):
    """The options or the connection do not allow exactly-once consumption."""


class TopicChangedError(ConsumerError):
    """The topic was deleted and created again, or has lost records, below the stored position or after it."""


class PositionError(ConsumerError):
    """The stored position went back or vanished under a running loop: a restored database, or a person."""


class TransactionEndedError(ConsumerError):
    """The loop's body ended the transaction that the loop had begun."""
