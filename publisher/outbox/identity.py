"""Checks the outbox, its Postgres server, and the Kafka cluster and transactional-id prefix that the outbox is bound to."""

from typing import Any, NamedTuple
from uuid import UUID

import psycopg

from db.statements import queries
from publisher.protocol import remediation
from publisher.protocol.stop_reasons import StoppedError, StopReason
from service.errors import SchemaError
from service.settings import Settings

_IDENTITY = queries("publisher", "identity")


class OutboxIdentity(NamedTuple):
    """The row of `outbox.identity`, and the current identity of the server."""

    outbox_uuid: UUID
    cluster_id: str | None
    transactional_id_prefix: str | None
    output_topic_ids: dict[str, str]
    system_identifier: int
    timeline: int
    server_system_identifier: int
    server_timeline: int


def name_outbox(settings: Settings, outbox_uuid: UUID) -> Settings:
    """Return the settings with `{outbox}` in `cloudevents_source` replaced by the outbox's uuid."""
    publisher = settings.publisher
    source = publisher.cloudevents_source.replace("{outbox}", str(outbox_uuid))
    return settings.model_copy(
        update={"publisher": publisher.model_copy(update={"cloudevents_source": source})}
    )


def read_identity(connection: psycopg.Connection[Any]) -> OutboxIdentity:
    """Read the identity. Raises SchemaError if the row is missing."""
    row = connection.execute(_IDENTITY["read"]).fetchone()
    if row is None:
        raise SchemaError("outbox.identity has no row: the schema is damaged. Restore it, or create it again")
    return OutboxIdentity._make(row)


def bind(connection: psycopg.Connection[Any], cluster_id: str, prefix: str) -> OutboxIdentity:
    """Bind the outbox to this cluster and prefix unless it is bound already. Raises StoppedError if it is bound to others, or if another
    server is recorded in `outbox.identity`."""
    check_server(read_identity(connection))
    connection.execute(
        _IDENTITY["bind"],
        {"cluster_id": cluster_id, "transactional_id_prefix": prefix},
    )
    identity = read_identity(connection)
    _check_binding(identity, cluster_id, prefix)
    return identity


def check_unchanged(connection: psycopg.Connection[Any], bound: OutboxIdentity) -> OutboxIdentity:
    """Return the identity of a new connection's outbox.

    Raises StoppedError unless outbox, server, cluster and prefix are those of `bound`.
    """
    found = read_identity(connection)
    if found.outbox_uuid != bound.outbox_uuid:
        raise StoppedError(
            StopReason.OTHER_OUTBOX,
            f"this publisher was started for outbox {bound.outbox_uuid}, now [postgres] dsn leads to {found.outbox_uuid}. "
            "Restart `publisher run` if that is intended, else correct the dsn (OUTBOX_POSTGRES__DSN)",
        )
    check_server(found)
    if found.server_system_identifier != bound.server_system_identifier:
        raise StoppedError(
            StopReason.OTHER_SERVER,
            f"this publisher was started on the Postgres server {bound.server_system_identifier}, now [postgres] dsn "
            f"leads to {found.server_system_identifier}. Restart `publisher run` once server "
            f"{bound.server_system_identifier} is gone for good",
        )
    _check_binding(found, bound.cluster_id, bound.transactional_id_prefix)
    return found


def check_server(identity: OutboxIdentity) -> None:
    """Raise StoppedError unless the server is the one recorded in `outbox.identity`."""
    if identity.system_identifier != identity.server_system_identifier:
        raise StoppedError(
            StopReason.OTHER_SERVER,
            f"outbox {identity.outbox_uuid} is recorded for the Postgres server {identity.system_identifier}, but this server is "
            f"{identity.server_system_identifier}: the outbox was dumped and restored, or upgraded. The original may still be published. "
            f"{remediation.OTHER_SERVER}",
        )


def _check_binding(identity: OutboxIdentity, cluster_id: str | None, prefix: str | None) -> None:
    check_cluster(identity.cluster_id, cluster_id)
    check_prefix(identity, prefix)


def check_prefix(identity: OutboxIdentity, prefix: str | None) -> None:
    """Raise StoppedError unless the outbox is published with this prefix."""
    if identity.transactional_id_prefix != prefix:
        raise StoppedError(
            StopReason.OTHER_PREFIX,
            f"this outbox has been published with [publisher] transactional_id_prefix = "
            f"{identity.transactional_id_prefix!r}, now it is {prefix!r}: a publisher that still runs with the old one "
            "would not be fenced. Set it back (OUTBOX_PUBLISHER__TRANSACTIONAL_ID_PREFIX)",
        )


def check_cluster(bound: str | None, cluster_id: str | None) -> None:
    """Raise StoppedError unless the outbox is bound to this cluster."""
    if bound != cluster_id:
        raise StoppedError(
            StopReason.OTHER_CLUSTER,
            f"this outbox delivers to Kafka cluster {bound}, but bootstrap_servers leads to {cluster_id}. {remediation.OTHER_CLUSTER}",
        )
