"""Logs the connections to other machines that anybody on the network path could read or answer, each once in a process.

A service logs those of its settings at its start, Spark's when Spark has started; a command logs those that it opens.
"""

import ipaddress
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from urllib.parse import urlsplit

import structlog
from pydantic import SecretStr

from service.logins.options import unverified_by
from service.settings import KafkaSettings, RetentionSettings, SchemaRegistrySettings, Settings
from service.settings.dsn import PLAIN_MODES, address, dsn_from, is_local, is_remote, libpq_options, ssl_mode

_log = structlog.get_logger()

_PLAIN = "without TLS: anybody on the network path can read and change all traffic"
_UNVERIFIED = "with TLS that does not verify the server: anybody on the network path can pretend to be it"
_UNNAMED = "with TLS without host-name verification: anybody with a certificate of the same authority can pretend to be it"
_OPEN = "by connections that are not all authenticated and encrypted: anybody on the network path can read the events and run code"
SPARK_CHANNELS = {
    "spark.authenticate": "true",
    "spark.network.crypto.enabled": "true",
    # Otherwise an attacker on the path answers the handshake with an error, and both ends continue without encryption.
    "spark.network.crypto.saslFallback": "false",
    "spark.network.crypto.authEngineVersion": "2",
    # Spark's default, CTR, does not detect that a message was changed.
    "spark.network.crypto.cipher": "AES/GCM/NoPadding",
}
"""The options that protect Spark's own connections. They are set if there is a secret, unless `[job] spark_options` sets them."""
_SPARK_SECRET = "spark.authenticate.secret"
_TRUSTS_ANY = "spark.kubernetes.trust.certificates"
_STANDALONE, _KUBERNETES, _CLUSTER = "spark://", "k8s://", "Spark's cluster"


_TOKEN_ENDPOINT = "sasl.oauthbearer.token.endpoint.url"  # librdkafka's name, and that of Kafka's Java client
_REGISTRY_TOKEN_ENDPOINT = "bearer.auth.issuer.endpoint.url"
Unprotected = tuple[str, str, str]
"""Server, address, why."""
_named: set[Unprotected] = set()
"""Those that this process has logged."""


def name_unprotected(settings: Settings) -> None:
    """Log each server of the settings whose connection is unprotected."""
    _name_each(unprotected(settings))


def name_unprotected_kafka(kafka: KafkaSettings) -> None:
    """Log the cluster if its connection is unprotected."""
    _name_each(_kafka(kafka))


def name_unprotected_registry(registry: SchemaRegistrySettings) -> None:
    """Log the registry if its connection is unprotected."""
    _name_each(_registry(registry))


def name_unprotected_archive(retention: RetentionSettings) -> None:
    """Log the archive if its connection is unprotected."""
    _name_each(_archive(retention))


def name_unprotected_postgres(dsn: SecretStr) -> None:
    """Log the server if its connection is unprotected."""
    _name_each(_postgres(dsn))


def name_open_cluster(master: str, options: Mapping[str, str]) -> None:
    """Log the Spark cluster if its connections are open. `options`: all that are in force, whoever set them."""
    _name_each(_spark(master, options))


def _name_each(found: Iterator[Unprotected]) -> None:
    for server, where, why in found:
        if (server, where, why) not in _named:
            _named.add((server, where, why))
            _log.warning(
                "connection_unprotected", server=server, address=where, reason=f"{server} is reached {why}"
            )


def unprotected(settings: Settings) -> Iterator[Unprotected]:
    """Yield each unprotected connection but Spark's. Servers of this host, or behind a socket, are left out."""
    yield from _kafka(settings.kafka)
    consumers = _consumer_dsn(settings)
    for login in (settings.postgres.dsn, settings.retention.dsn, settings.console.dsn, consumers):
        if login is not None:
            yield from _postgres(login)
    yield from _registry(settings.schema_registry)
    yield from _archive(settings.retention)
    collector = settings.tracing.endpoint or ""
    if _is_plain(collector):
        yield "the collector of spans", _host_and_port(collector), _PLAIN


def _consumer_dsn(settings: Settings) -> SecretStr | None:
    file = settings.console.consumer_dsn_file
    with suppress(ValueError):  # the console reports what is wrong with the file
        return None if file is None else dsn_from(file, "consumer_dsn_file")
    return None


def _is_remote_cluster(master: str) -> bool:
    is_local_one = master.startswith(_STANDALONE) and is_local(
        master.removeprefix(_STANDALONE).rpartition(":")[0]
    )
    return not master.startswith("local") and not is_local_one


def _spark(master: str, options: Mapping[str, str]) -> Iterator[Unprotected]:
    if _is_plain(master.removeprefix(_KUBERNETES)):
        yield "the API server of Kubernetes", master, _PLAIN
    elif master.startswith(_KUBERNETES) and options.get(_TRUSTS_ANY, "").lower() == "true":
        yield "the API server of Kubernetes", master, f"{_UNVERIFIED} ({_TRUSTS_ANY}=true)"
    # A standalone cluster does not make the secret itself.
    secret = (_SPARK_SECRET,) if master.startswith(_STANDALONE) else ()
    unset = [
        f"{name}={value}"
        for name, value in SPARK_CHANNELS.items()
        if options.get(name, "").lower() != value.lower()
    ]
    unset += [name for name in secret if name not in options]
    if _is_remote_cluster(master) and unset:
        yield _CLUSTER, master, f"{_OPEN} (set {', '.join(unset)})"


def _kafka(kafka: KafkaSettings) -> Iterator[Unprotected]:
    # Spark's client has further options.
    clients: list[Mapping[str, object]] = [kafka.client(), {**kafka.client(), **kafka.java_options}]
    brokers = [each.strip().rpartition("://")[2] for each in kafka.bootstrap_servers.split(",")]
    if not all(is_local(each.rpartition(":")[0] or each) for each in brokers):
        found = [_kafka_client(options) for options in clients]
        for why in (_PLAIN, _UNVERIFIED):
            if why in found:
                yield "Kafka", kafka.bootstrap_servers, why
                break
    for url in dict.fromkeys(str(options.get(_TOKEN_ENDPOINT, "")) for options in clients):
        yield from _token_endpoint("Kafka's token endpoint", url)


def _registry(registry: SchemaRegistrySettings) -> Iterator[Unprotected]:
    urls, options = registry.url.split(","), registry.client()
    if any(map(_is_plain, urls)):
        yield "the schema registry", registry.url, _PLAIN
    elif options.get("ssl.ca.location") is False and any(not _is_of_this_host(url) for url in urls):
        yield "the schema registry", registry.url, f"{_UNVERIFIED} (ssl.ca.location = false)"
    yield from _token_endpoint(
        "the schema registry's token endpoint", str(options.get(_REGISTRY_TOKEN_ENDPOINT, ""))
    )


def _archive(retention: RetentionSettings) -> Iterator[Unprotected]:
    endpoint = retention.archive_endpoint or ""
    if _is_plain(endpoint):
        yield "the archive", endpoint, _PLAIN


def _token_endpoint(server: str, url: str) -> Iterator[Unprotected]:
    # The metadata service of a cloud's machine has no TLS, and its link-local address leads to no other machine.
    if _is_plain(url) and not _is_link_local(urlsplit(url).hostname or ""):
        yield server, _host_and_port(url), _PLAIN


def _is_plain(url: str) -> bool:
    return urlsplit(url.strip()).scheme == "http" and not _is_of_this_host(url)


def _is_of_this_host(url: str) -> bool:
    return is_local(urlsplit(url.strip()).hostname or "")


def _is_link_local(host: str) -> bool:
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_link_local
    return False


def _host_and_port(url: str) -> str:
    """Return host and port of a url, without user, password and query."""
    parts = urlsplit(url)
    return f"{parts.hostname}:{parts.port or 80}"


def _kafka_client(options: Mapping[str, object]) -> str | None:
    if str(options.get("security.protocol", "plaintext")).strip().lower() not in ("ssl", "sasl_ssl"):
        return _PLAIN
    return None if unverified_by(options) is None else _UNVERIFIED


def _postgres(login: SecretStr) -> Iterator[Unprotected]:
    options = libpq_options(login)
    mode = ssl_mode(options)
    if is_remote(options):
        if mode in PLAIN_MODES:
            yield "Postgres", address(login), f"{_PLAIN} (sslmode={mode})"
        elif mode != "verify-full":
            # With `require` libpq checks the certificate only if `sslrootcert` exists.
            is_checked = mode == "verify-ca" or os.path.exists(options.get("sslrootcert", ""))
            yield "Postgres", address(login), f"{_UNNAMED if is_checked else _UNVERIFIED} (sslmode={mode})"
