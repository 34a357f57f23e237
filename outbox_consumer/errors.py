"""The exceptions that end the loop. Start the loop again once the cause is removed; it continues at the stored positions."""


class ConsumerError(Exception):
    """The loop cannot continue without a person."""


class SettingsError(ConsumerError):
    """The options or the connection do not allow exactly-once consumption."""


class TopicChangedError(ConsumerError):
    """The topic was deleted and created again, or it has lost records before or after the stored position."""


class PositionError(ConsumerError):
    """The stored position moved back or vanished while the loop ran: the database was restored, or a person changed it."""


class TransactionEndedError(ConsumerError):
    """The loop's body ended the transaction that the loop had begun."""
