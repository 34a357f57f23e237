"""Compares the recorded binding of an outbox with the present one, and records the differences that a person has accepted."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson
import psycopg
from psycopg.types.json import Jsonb

from db import operations
from db.statements import queries
from publisher.kafka.topics import Topics
from publisher.outbox.identity import OutboxIdentity, check_cluster, check_prefix, check_server, read_identity
from service.errors import ContinuityError, SettingsError

_IDENTITY = queries("publisher", "identity")


class AcceptedRebinding(NamedTuple):
    """Which changes a person has accepted: of the cluster, the server, and topics."""

    cluster: bool = False
    server: bool = False
    topics: tuple[str, ...] = ()


@dataclass(frozen=True)
class Binding:
    """`found`: the recorded binding. The other fields: the binding to record. `replaced`: {topic: present id} that nobody accepted."""

    found: OutboxIdentity
    cluster_id: str
    prefix: str
    topic_ids: dict[str, str]
    system_identifier: int
    timeline: int
    replaced: dict[str, str]

    @property
    def changed(self) -> bool:
        """Whether the binding has changed."""
        return (
            self.found.cluster_id != self.cluster_id
            or self.found.output_topic_ids != self.topic_ids
            or self.found.system_identifier != self.system_identifier
            or self.found.timeline != self.timeline
        )


def read_binding(
    connection: psycopg.Connection[Any], topics: Topics, prefix: str, accepted: AcceptedRebinding
) -> Binding:
    """Compare the recorded binding with the present one.

    Raises StoppedError for another cluster, server or prefix that was not accepted, SettingsError for an accepted topic to which the outbox
    has never written, KafkaException.
    """
    found = read_identity(connection)
    if not accepted.server:
        check_server(found)
    cluster_id = topics.cluster_id()
    if found.cluster_id is not None and not accepted.cluster:
        check_cluster(found.cluster_id, cluster_id)
    if found.transactional_id_prefix is not None:
        check_prefix(found, prefix)
    recorded = dict(found.output_topic_ids)
    for name in accepted.topics:
        if name not in recorded:
            known = ", ".join(sorted(recorded)) or "none"
            raise SettingsError(
                f"--accept-new-topic {name}: this outbox never delivered to that topic. It knows: {known}"
            )
    if found.cluster_id != cluster_id:
        # Topics of another cluster have other ids, which are recorded at their first produce.
        recorded = {}
    present = topics.ids(recorded)
    replaced = {name: there for name, there in present.items() if there != recorded[name]}
    for name in accepted.topics:
        if name in replaced:
            recorded[name] = replaced.pop(name)
    return Binding(
        found,
        cluster_id,
        prefix,
        recorded,
        found.server_system_identifier if accepted.server else found.system_identifier,
        found.server_timeline if accepted.server else found.timeline,
        replaced,
    )


def rebind(connection: psycopg.Connection[Any], binding: Binding, asked: Mapping[str, Any]) -> None:
    """Record the new binding. `asked`: for the operator log. Raises ContinuityError if the recorded binding has changed since it was
    read."""
    with connection.transaction():
        changed = _rebind(connection, binding)
        operations.record(connection, "publisher resume", asked, changed)


def _rebind(connection: psycopg.Connection[Any], binding: Binding) -> dict[str, Any]:
    before = binding.found.output_topic_ids
    accepted = {name: now for name, now in binding.topic_ids.items() if before.get(name) != now}
    replaced = {name: before[name] for name in accepted if name in before}
    written = connection.execute(
        _IDENTITY["rebind"],
        {
            "cluster_id": binding.cluster_id,
            "transactional_id_prefix": binding.prefix,
            "accepted_ids": Jsonb(accepted, dumps=orjson.dumps),
            "replaced_ids": Jsonb(replaced, dumps=orjson.dumps),
            "system_identifier": binding.system_identifier,
            "timeline": binding.timeline,
            "found_cluster_id": binding.found.cluster_id,
            "found_system_identifier": binding.found.system_identifier,
            "found_timeline": binding.found.timeline,
        },
    )
    if written.rowcount != 1:
        raise ContinuityError(
            "the binding of this outbox (outbox.identity: cluster, server, topics) has changed meanwhile, so no new one was recorded. "
            "Lanes that were moved stay moved; run the command again"
        )
    return {
        "cluster_id": binding.cluster_id,
        "system_identifier": binding.system_identifier,
        "timeline": binding.timeline,
        "output_topic_ids": accepted,
    }
