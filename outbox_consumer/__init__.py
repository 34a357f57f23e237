"""Exactly-once consumption into your own database: each output of an outbox has its effect once, whichever process dies.

    with psycopg.connect(DSN) as connection:
        for output in consume(connection, {"bootstrap.servers": SERVERS, "group.id": "billing"}, ["orders.totals"]):
            if output.outbox_id is None:
                continue  # no outbox sent this record
            with output:
                connection.execute("INSERT INTO total (id, body) VALUES (%s, %s)", (str(output.outbox_id), output.value))

State: the tables `outbox_consumer_*` in the database of the effects (`store.py`). Position and outbox-ids are committed in the transaction
of the effects, so they cannot disagree with the effects. Any number of processes may run with one `group.id`, and each may be paused,
fenced or killed at any time. A partition's position is one row; a transaction locks the row, and only its holder applies records. `loop.py`
has the steps.
"""

from outbox_consumer.errors import (
    ConsumerError,
    PositionError,
    SettingsError,
    TopicChangedError,
    TransactionEndedError,
)
from outbox_consumer.loop import consume, retry
from outbox_consumer.outputs import Output

__all__ = [
    "ConsumerError",
    "Output",
    "PositionError",
    "SettingsError",
    "TopicChangedError",
    "TransactionEndedError",
    "consume",
    "retry",
]
