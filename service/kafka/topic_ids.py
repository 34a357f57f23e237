"""Topic ids as Kafka's own tools write them."""

NO_ID = "A" * 22
"""The id from brokers without topic ids: the zero uuid."""

_URL_SAFE = str.maketrans("+/", "-_")


def topic_id_text(uuid: object) -> str:
    """Return a client's Uuid in URL-safe base64, as `org.apache.kafka.common.Uuid` prints it.

    librdkafka prints standard base64, whose `/` would break an outbox-id, `<topic id>/<partition>/<offset>/<index>`, apart.
    """
    return str(uuid).translate(_URL_SAFE)
