"""A client for administrative requests, and the error for a failure of Kafka."""

import re
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from service.errors import (
    CredentialsRefusedError,
    HostUnknownError,
    OptionsRefusedError,
    OutboxError,
    RefusedError,
    UnavailableError,
)
from service.kafka.host_names import hosts_of, none_exists
from service.kafka.renewable_client import Complaints, RenewableClient, is_own
from service.kafka.transport import name_unprotected_kafka
from service.logins.kafka import NO_TOKEN, logged_in
from service.settings import KafkaSettings

QUIET = {"log_level": 0}
"""Failures reach the caller as exceptions; librdkafka's log would repeat each of them for every retry."""
# Administrative requests go to the broker that was the controller by the last metadata. A client without topics asks for metadata only
# every five minutes, even if that broker is dead. (librdkafka asks at most every 10 s.)
_FRESH = {"topic.metadata.refresh.interval.ms": 5_000}
# librdkafka takes an administrative client for a producer, which by default would create the topics that it asks for.
_ONLY_ASKS = {"allow.auto.create.topics": False}

# If librdkafka knows a broker's id, it names the broker by its advertised address, which may not be in bootstrap_servers.
_OTHER_BROKER = re.compile(r"(?P<address>[^\s/]+:\d+)/\d+:")

UNAUTHENTICATED = {KafkaError.SASL_AUTHENTICATION_FAILED, KafkaError._AUTHENTICATION}
"""Codes of refused credentials."""
UNAUTHORISED = UNAUTHENTICATED | {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
"""Codes of a missing right or refused credentials."""
_CLASSES: dict[int, type[OutboxError]] = {
    **dict.fromkeys(UNAUTHORISED, RefusedError),
    **dict.fromkeys((*UNAUTHENTICATED, KafkaError._SSL), CredentialsRefusedError),
    KafkaError._INVALID_ARG: OptionsRefusedError,
}

KafkaAdmin = RenewableClient[AdminClient]


def admin_client(settings: KafkaSettings) -> KafkaAdmin:
    """Return a client for administrative requests.

    Raises KafkaException, SettingsError if the settings allow no client, LoginFailedError.
    """

    def make(complaints: Complaints) -> AdminClient:
        told: dict[str, Any] = {"error_cb": complaints}
        return AdminClient(logged_in(QUIET | _FRESH | settings.client() | _ONLY_ASKS | told))

    name_unprotected_kafka(settings)
    return RenewableClient(make)


def failure_class(error: KafkaError) -> type[OutboxError]:
    """Return the class of the error that ends a process or a command, by Kafka's code."""
    return _CLASSES.get(error.code(), UnavailableError)


def failure_of(settings: KafkaSettings, error: KafkaException, needs: str = "") -> OutboxError:
    """Return why Kafka does not answer or refuses, and what to correct. `needs`: the client's rights, for the message."""
    told = error.args[0]
    kind = failure_class(told)
    if kind is RefusedError:
        advice = f"It needs {needs}" if needs else "Grant it this right"
        return RefusedError(
            f"Kafka at {settings.bootstrap_servers} refuses this client: {told.str()}. {advice} (docs/ecosystem.md has all rights)"
        )
    if kind is UnavailableError and none_exists(hosts_of(settings.bootstrap_servers)):
        kind = HostUnknownError
    return kind(no_answer(settings, told))


def no_answer(settings: KafkaSettings, error: KafkaError) -> str:
    """Return why Kafka does not answer, and what to correct; or the error that a broker answered."""
    where = f"Kafka at {settings.bootstrap_servers}"
    if error.str().startswith(NO_TOKEN):
        return f"{where} cannot be asked: {error.str()}"
    if error.code() in UNAUTHENTICATED and settings.login is not None:
        return (
            f"{where} refuses the login: {error.str()}. [kafka] login = {settings.login!r} (OUTBOX_KAFKA__LOGIN) gave a token of the "
            "identity that this machine has at its provider: give that identity the right to connect"
        )
    if error.code() in UNAUTHENTICATED:
        return (
            f"{where} refuses the credentials: {error.str()}. Correct sasl.mechanism, sasl.username and sasl.password in "
            "[kafka.options] (OUTBOX_KAFKA__OPTIONS) or in the file that [kafka] secret_options_file names"
        )
    if error.code() == KafkaError._SSL:
        return (
            f"there is no TLS connection to {where}: {error.str()}. Correct security.protocol, ssl.ca.location and the other ssl.* of "
            "[kafka.options] (OUTBOX_KAFKA__OPTIONS)"
        )
    if error.code() == KafkaError._INVALID_ARG:
        return (
            f"no client for {where} can be made with these settings: {error.str()}. Correct [kafka.options]"
        )
    advertised = _OTHER_BROKER.search(error.str())
    if advertised is not None and advertised["address"] not in settings.bootstrap_servers.split(","):
        return (
            f"{where} answers, but calls its broker {advertised['address']}, which cannot be reached from here: {error.str()}. Correct "
            "advertised.listeners of the brokers, or make that name known to this host"
        )
    if not is_own(error):
        return f"{where} answers with an error: {error.str()}"
    return (
        f"{where} does not answer: {error.str()}. Check [kafka] bootstrap_servers (OUTBOX_KAFKA__BOOTSTRAP_SERVERS), and "
        "security.protocol in [kafka.options]; `devstack status` shows a local one"
    )
