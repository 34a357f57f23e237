"""The finding `outbox_behind`: the database was restored or failed over to an older state, and has lost batches that were delivered.

The publisher's progress records in Kafka (contract/progress.py) name the newest delivered batch of each lane and the id of its commit. A
batch that the ledger lacks, or has with another commit id, is lost.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple
from uuid import UUID

import structlog
from confluent_kafka import KafkaException

from contract.progress import Progress, lane_of_key, progress_topic
from db.connection import Connection
from db.statements import queries
from service.errors import ContinuityError, UnavailableError
from service.kafka.client import KafkaAdmin, admin_client, no_answer
from service.kafka.cluster import cluster
from service.kafka.reading import RangeReader, committed_consumer
from service.kafka.rights import needing
from service.kafka.topics import existing_topics, partition_offsets
from service.settings import Settings
from spark_job.ledger import runs
from spark_job.recovery.findings import Finding

_LEDGER = queries("spark_job", "ledger")

log = structlog.get_logger()

_TIMEOUT_S = 10.0
# Number of offsets at a partition's end that are read first; commit markers take offsets, too.
_WINDOW = 64


class Delivered(NamedTuple):
    """The newest delivered batch of a lane in an epoch, and the random id of that batch's commit."""

    batch_id: int
    commit_id: UUID | None
    epoch: int = 1

    def to_json(self) -> dict[str, Any]:
        """Return the JSON that a generation stores: without the epoch, because batches are numbered across epochs."""
        return {
            "batch_id": self.batch_id,
            "commit_id": None if self.commit_id is None else str(self.commit_id),
        }


def delivered_batches(connection: Connection, settings: Settings, outbox_uuid: UUID) -> list[Delivered]:
    """Return what `newest_delivered` returns.

    If Kafka does not answer, or has no record although the outbox has deliveries, return an empty list; but raise UnavailableError if
    Postgres is another server since the last start, because the database may then have lost batches. If the outputs are in another
    cluster, always return an empty list. Raises ContinuityError as `newest_delivered` does.
    """
    topic = progress_topic(settings.publisher.progress_topic, outbox_uuid)
    try:
        delivered = newest_delivered(settings, outbox_uuid)
        bound = None if delivered else _delivers_to(connection)
        if bound is None:
            return delivered
        if bound == _cluster_id(settings, topic):
            raise UnavailableError(
                f"the progress topic {topic} is gone or has no record, and the outbox has deliveries: `publisher status` shows how its "
                "lanes stopped, `publisher resume` writes the records again"
            )
        because = f"the outputs are in another Kafka cluster than the input: {bound}"
    except UnavailableError as error:
        run = runs.newest(connection)
        if run is not None and run.server_changed:
            raise UnavailableError(
                "Postgres is another server, or was promoted or restored, since the last start (system identifier, timeline: "
                f"{run.system_identifier}, {run.timeline} -> {run.server_system_identifier}, {run.server_timeline}), and only the "
                f"publisher's records show whether it lost batches: {error}. The job waits for them"
            ) from error
        because = str(error)
    log.warning("delivered_unknown", because=because)
    return []


def _delivers_to(connection: Connection) -> str | None:
    """Return the id of the cluster that the publishers deliver to, None if they have delivered nothing yet."""
    row = connection.execute(_LEDGER["delivers_to"]).fetchone()
    return None if row is None else row[0]


def _cluster_id(settings: Settings, topic: str) -> str:
    try:
        return cluster(admin_client(settings.kafka), topic, _TIMEOUT_S).cluster_id
    except KafkaException as error:
        raise UnavailableError(no_answer(settings.kafka, error.args[0])) from error


def newest_delivered(settings: Settings, outbox_uuid: UUID) -> list[Delivered]:
    """Return each lane's position, by its newest committed record; empty if nothing was ever delivered.

    Raises UnavailableError when Kafka does not answer or refuses, ContinuityError for a record that no publisher of this version wrote.
    """
    topic = progress_topic(settings.publisher.progress_topic, outbox_uuid)
    group = f"{topic}-look"  # never committed; the client requires one
    try:
        with needing("Read", "topic", topic), needing("Describe", "consumer group", group):
            bounds = _bounds(admin_client(settings.kafka), topic)
            if not bounds:
                return []
            with RangeReader(
                lambda: committed_consumer(settings.kafka.client(), group), _TIMEOUT_S
            ) as reader:
                return _read_newest(reader, topic, bounds)
    except KafkaException as error:
        raise UnavailableError(
            f"the progress topic {topic} cannot be read: {no_answer(settings.kafka, error.args[0])}"
        ) from error
    except ValueError as error:
        raise ContinuityError(
            f"{topic}: {error}. Something else writes to this progress topic, or a newer publisher did: use that version of the job, too. "
            "The publisher's lane stops at it, too (docs/stopped-lanes.md, `other_outbox`)"
        ) from error


def _bounds(admin: KafkaAdmin, topic: str) -> dict[int, tuple[int, int]]:
    """Return {partition: (first offset, end for a reader of committed records)}; empty if the topic is missing. Raises KafkaException."""
    described = existing_topics(admin, [topic], _TIMEOUT_S)
    if not described:
        return {}

    places = [(topic, partition.id) for partition in described[topic].partitions]
    lows = partition_offsets(admin, places, "earliest", _TIMEOUT_S, committed=True)
    ends = partition_offsets(admin, places, "latest", _TIMEOUT_S, committed=True)
    return {place[1]: (low, ends[place]) for place, low in lows.items()}


def _read_newest(reader: RangeReader, topic: str, bounds: Mapping[int, tuple[int, int]]) -> list[Delivered]:
    """Return what `newest_delivered` returns: read each partition backwards, in growing windows, up to a record. Raises KafkaException."""
    found: dict[int, Delivered] = {}
    left = {each: end for each, (low, end) in bounds.items() if end > low}
    window = _WINDOW
    while left:
        starts = {each: max(bounds[each][0], end - window) for each, end in left.items()}
        for messages in reader.read({(topic, each): (start, left[each]) for each, start in starts.items()}):
            for message in messages:
                value = message.value()
                if value is not None and lane_of_key(message.key()) is not None:
                    record = Progress.decode(value)
                    found[message.partition()] = Delivered(
                        record.cursor.batch_id, record.commit_id, record.epoch
                    )
        left = {
            each: start for each, start in starts.items() if each not in found and start > bounds[each][0]
        }
        window *= 16
    return list(found.values())


def lost_batches(connection: Connection, delivered: list[Delivered]) -> tuple[list[Delivered], list[Finding]]:
    """Return the delivered batches that the ledger lacks and that no person has accepted yet, and the finding about them, if any.

    Read `delivered` from Kafka before this call: the ledger only grows, so it has each of these batches unless it lost them.
    """
    if not delivered:
        return [], []
    row = connection.execute(
        _LEDGER["commits"], {"batches": [each.batch_id for each in delivered]}
    ).fetchone()
    assert row is not None
    first, last, commits, first_epoch = row[0] or 0, row[1] or 0, row[2] or {}, row[4] or 0
    accepted = row[3] or []
    unknown = [
        each
        for each in delivered
        if each.to_json() not in accepted
        and (each.batch_id > last or _is_another(each, first, first_epoch, commits))
    ]
    batches = sorted(each.batch_id for each in unknown)
    if not batches:
        return [], []
    if batches[-1] > last:
        text = (
            f"the publisher's records in Kafka know batch {batches[-1]}, the ledger ends with batch {last}: outputs of at most "
            f"{batches[-1] - last} batches go out again"
        )
    else:
        text = (
            f"the publisher's records in Kafka know another commit of batch {batches[0]} than the ledger: outputs of "
            f"{last - batches[0] + 1} batches, or more, go out again"
        )
    finding = Finding(
        "outbox_behind",
        f"the database was restored or failed over to an older state: {text}, with equal outbox-ids",
        "--accept-outbox-behind",
    )
    return unknown, [finding]


def _is_another(delivered: Delivered, first: int, first_epoch: int, commits: Mapping[str, str]) -> bool:
    """Return whether the ledger has another commit of this batch, or none. Batches below `first` were pruned."""
    if delivered.epoch < first_epoch:
        # Retention has removed this epoch and its batches. The progress topic keeps the last record of a lane that no longer exists.
        return False
    known = delivered.commit_id is None or commits.get(str(delivered.batch_id)) == str(delivered.commit_id)
    return delivered.batch_id >= first and not known
