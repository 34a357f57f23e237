"""What both services ask of librdkafka: a quiet administrative client, and why Kafka does not answer or refuses."""

from typing import Any

from confluent_kafka import KafkaError
from confluent_kafka.admin import AdminClient

from service.settings import KafkaSettings

QUIET = {"log_level": 0}
"""Failures reach the caller as exceptions; librdkafka's own lines would repeat each of them for every retry."""
# Administrative requests go to the broker that the last metadata called the controller. A client without topics asks for metadata
# every five minutes only, also when that broker is dead. (librdkafka asks every 10 s at most.)
_FRESH = {"topic.metadata.refresh.interval.ms": 5_000}
# Who only asks makes nothing; a producer's default (librdkafka takes an administrative client for one) would.
_ONLY_ASKS = {"allow.auto.create.topics": False}

UNAUTHORISED = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError._AUTHENTICATION,
}
"""Broker errors for want of a right or of the right credentials."""


class Complaints:
    """What librdkafka says of its connections: a request that waits for one only times out, without saying why."""

    def __init__(self) -> None:
        self.last: KafkaError | None = None
        """Why the credentials or the TLS connection were last refused, None where they were not."""

    def __call__(self, error: KafkaError) -> None:
        if error.code() in (KafkaError._AUTHENTICATION, KafkaError._SSL):
            self.last = error


def admin_client(settings: KafkaSettings, complaints: Complaints | None = None) -> AdminClient:
    """Return a client for administrative requests. `complaints` is told when it is polled."""
    told: dict[str, Any] = {} if complaints is None else {"error_cb": complaints}
    return AdminClient(QUIET | _FRESH | settings.client() | _ONLY_ASKS | told)


def no_answer(settings: KafkaSettings, error: KafkaError, complaints: Complaints) -> str:
    """Return why Kafka does not answer, and what to correct."""
    where = f"Kafka at {settings.bootstrap_servers}"
    refused = complaints.last
    if refused is not None and refused.code() == KafkaError._AUTHENTICATION:
        return (
            f"{where} refuses the credentials: {refused.str()}. Correct sasl.mechanism, sasl.username and sasl.password in "
            "[kafka.options] (OUTBOX_KAFKA__OPTIONS) or in the file that [kafka] secret_options_file names"
        )
    if refused is not None:
        return (
            f"there is no TLS connection to {where}: {refused.str()}. Correct security.protocol, ssl.ca.location and the other ssl.* of "
            "[kafka.options] (OUTBOX_KAFKA__OPTIONS)"
        )
    return (
        f"{where} does not answer: {error.str()}. Check [kafka] bootstrap_servers (OUTBOX_KAFKA__BOOTSTRAP_SERVERS), and "
        "security.protocol in [kafka.options]; `devstack status` shows a local one"
    )
