"""Plans and creates a new replay: finds the batches that all lanes have delivered (selection.py), counts their rows, inserts the replay."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
from confluent_kafka import KafkaException

from publisher.archive.catalogue import read_catalogue
from publisher.archive.opening import open_archive
from publisher.delivery.context import Context
from publisher.protocol.replay_targets import ReplayTargets
from publisher.replay import archived, store
from publisher.replay.selection import Count, Filters, ReplayRange, count, resolve, unknown_keys
from publisher.replay.store import NewReplay, Replay
from publisher.replay.target import kafka_settings
from publisher.retention.retention_lock import hold_off_retention
from service.errors import ContinuityError, UnavailableError
from service.kafka.client import no_answer
from service.settings import KafkaSettings, Settings

Tick = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class ReplayRequest:
    """The options of `publisher replay start`."""

    filters: Filters
    targets: ReplayTargets
    to_config: Path | None
    to_servers: str | None
    rate: int | None
    create_topics: bool
    from_archive: bool = False

    def kafka(self, settings: Settings) -> KafkaSettings:
        """Return the settings for the target cluster. Raises SettingsError."""
        return kafka_settings(settings, self.to_config, self.to_servers)

    def as_json(self) -> dict[str, Any]:
        """Return the part of the request that is stored. It is only shown, because anybody who may write to the database can change it."""
        kept: dict[str, Any] = {"filter": self.filters.as_json()}
        if self.to_config is not None:
            kept["to_config"] = str(self.to_config.resolve())
        if self.to_servers is not None:
            kept["to_servers"] = self.to_servers
        return kept


@dataclass(frozen=True, slots=True)
class ReplayPlan:
    """What a request would send."""

    request: ReplayRequest
    batches: ReplayRange
    count: Count
    unknown_keys: list[str]
    """The named session keys that have no row in these batches."""
    manifests: list[bytes] = field(default_factory=list)
    """The archived partitions that were counted."""

    @property
    def only_unknown_keys(self) -> bool:
        """Whether session keys were named and none of them has a row."""
        return self.request.filters.keys is not None and len(self.unknown_keys) == len(
            self.request.filters.keys
        )

    @property
    def destinations(self) -> set[str]:
        """The topics that the replay writes to."""
        return self.request.targets.of_all(self.count.topics)

    @property
    def seconds_at_rate(self) -> float | None:
        """The least time that the replay takes at its rate; None without a rate."""
        return None if self.request.rate is None else self.count.events / self.request.rate

    def as_json(self) -> dict[str, Any]:
        """Return the fields for JSON output."""
        return {
            "from_batch": self.batches.first,
            "to_batch": self.batches.last,
            "left_out": self.batches.notes,
            "rows": self.count.rows,
            "sessions": self.count.sessions,
            "events": self.count.events,
            "bytes": self.count.bytes,
            "topics": {name: part._asdict() for name, part in self.count.topics.items()},
            "target_topic": self.request.targets.text,
            "destinations": sorted(self.destinations),
            "seconds_at_rate": self.seconds_at_rate,
            "unknown_keys": self.unknown_keys,
        }


def make_plan(
    connection: psycopg.Connection[Any],
    settings: Settings,
    request: ReplayRequest,
    counting: Callable[[ReplayRange], AbstractContextManager[Tick]],
) -> ReplayPlan:
    """Find the batches and count their rows. `counting` shows the progress.

    With the archive it raises SettingsError, ArchiveDamagedError, UnavailableError.
    """
    if request.from_archive:
        return _plan_of_archive(connection, settings, request, counting)
    batches = resolve(connection, request.filters)
    with counting(batches) as tick:
        found = count(connection, batches, request.filters, tick)
    return ReplayPlan(request, batches, found, unknown_keys(connection, batches, request.filters))


def _plan_of_archive(
    connection: psycopg.Connection[Any],
    settings: Settings,
    request: ReplayRequest,
    counting: Callable[[ReplayRange], AbstractContextManager[Tick]],
) -> ReplayPlan:
    archive = open_archive(connection, settings.retention, writing=False)
    try:
        batches = archived.resolve(connection, archive, request.filters)
        partitions = read_catalogue(connection, batches.first, batches.last) if not batches.empty else []
        with counting(batches) as tick:
            found, unknown = archived.count(archive, partitions, batches, request.filters, tick)
    except OSError as error:
        raise UnavailableError(f"the archive cannot be read: {error}. Nothing was sent") from error
    return ReplayPlan(request, batches, found, unknown, [of.manifest_sha256 for of in partitions])


def make(connection: psycopg.Connection[Any], plan: ReplayPlan, target: Context) -> Replay:
    """Insert the replay; retention then keeps its rows.

    Raises ContinuityError if rows were dropped, or the archive was changed, after the rows were counted.
    """
    batches, request = plan.batches, plan.request
    # Until the connection ends, no retention drops rows, and no erasure takes them.
    hold_off_retention(connection)
    if request.from_archive:
        partitions = read_catalogue(connection, batches.first, batches.last)
        changed = [of.manifest_sha256 for of in partitions] != plan.manifests
    else:
        now = resolve(connection, Filters(from_batch=batches.first, to_batch=batches.last))
        changed = now.first > batches.first or now.holes != batches.holes
    if changed:
        what = "the archive was changed" if request.from_archive else "retention dropped rows"
        raise ContinuityError(
            f"{what} of batches {batches.first} to {batches.last} while they were counted. Nothing was sent; start it again for the rest"
        )
    return store.create(
        connection,
        NewReplay(
            from_batch=batches.first,
            to_batch=batches.last,
            topics=None if request.filters.topics is None else list(request.filters.topics),
            requested=request.as_json(),
            target_topic=request.targets.text,
            target_cluster_id=target.identity.cluster_id,
            target_servers=target.settings.kafka.bootstrap_servers,
            events_per_second=request.rate,
            rows_total=plan.count.rows,
            events_total=plan.count.events,
            from_archive=request.from_archive,
        ),
        _known_keys(connection, plan),
    )


def _known_keys(connection: psycopg.Connection[Any], plan: ReplayPlan) -> list[str] | None:
    """Return the named keys that have rows: an erased one must not be stored again. None if none was named."""
    named = plan.request.filters.keys
    if named is None:
        return None
    # An archive that has not changed has the same keys.
    found = (
        plan.unknown_keys
        if plan.request.from_archive
        else unknown_keys(connection, plan.batches, plan.request.filters)
    )
    unknown = set(found)
    return [key for key in named if key not in unknown]


@contextmanager
def answering(kafka: KafkaSettings) -> Iterator[None]:
    """Raise UnavailableError if the target cluster does not answer in the block."""
    try:
        yield
    except KafkaException as error:
        why = no_answer(kafka, error.args[0])
        raise UnavailableError(f"the replay's target: {why}. Nothing was sent; try again") from error
