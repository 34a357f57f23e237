"""Names the right that Kafka refuses. Tasks use it, too, so it imports only Kafka's client."""

from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import KafkaError, KafkaException

_REFUSED = {
    "topic": KafkaError.TOPIC_AUTHORIZATION_FAILED,
    "consumer group": KafkaError.GROUP_AUTHORIZATION_FAILED,
    "transactional id": KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


@contextmanager
def needing(operation: str, kind: str, *names: str) -> Iterator[None]:
    """Name the right that the block needs if Kafka refuses it: Kafka's own text names neither the right nor its object.

    `kind` and `names`: topics, a consumer group or a transactional id. Raises KafkaException with Kafka's own code.
    """
    try:
        yield
    except KafkaException as error:
        told = error.args[0]
        if told.code() != _REFUSED[kind]:
            raise
        on = " and ".join(map(repr, names))
        text = f"{told.str()}: {operation} on {kind} {on} is needed"
        raise KafkaException(KafkaError(told.code(), text)) from error
