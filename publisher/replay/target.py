"""Opens and checks the Kafka cluster that a replay sends to: the outbox's own, or another one."""

import threading
from collections.abc import Iterable, Mapping
from pathlib import Path

from confluent_kafka import KafkaException
from pydantic import ValidationError

from contract.output_topics import OutputTopics
from contract.progress import progress_topic
from publisher.delivery.context import Context, Timelines
from publisher.kafka.clients import check_options
from publisher.kafka.topics import Topics
from publisher.outbox.identity import OutboxIdentity, name_outbox
from publisher.protocol.history_check import Identity
from publisher.protocol.stop_reasons import StoppedError, StopReason, TopicMissingError
from publisher.replay.store import Replay
from service.errors import SettingsError, UnavailableError
from service.kafka import client as kafka_client
from service.kafka.client import UNAUTHORISED
from service.settings import KafkaSettings, PublisherSettings, Settings
from service.settings.section import read_toml


def kafka_settings(settings: Settings, to_config: Path | None, to_servers: str | None) -> KafkaSettings:
    """Return the settings for the target: the [kafka] table of `to_config`, or `to_servers` alone, or the outbox's own. Raises
    SettingsError."""
    if to_config is not None and to_servers is not None:
        raise SettingsError("--to-config and --to-servers both name the target cluster: give one of them")
    if to_servers is not None:
        return _kafka({"bootstrap_servers": to_servers}, "--to-servers")
    if to_config is None:
        return settings.kafka
    try:
        table = read_toml(to_config).get("kafka")
    except (OSError, ValueError) as error:
        raise SettingsError(f"--to-config {str(to_config)!r} cannot be read: {error}") from error
    if not isinstance(table, dict):
        raise SettingsError(
            f"--to-config {str(to_config)!r} has no table [kafka]; it needs one with bootstrap_servers at least, as "
            "docs/configuration.md describes it"
        )
    return _kafka(table, f"--to-config {str(to_config)!r}")


def _kafka(values: dict[str, object], where: str) -> KafkaSettings:
    try:
        return KafkaSettings.model_validate(values)
    except ValidationError as error:
        lines = [f"  kafka.{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()]
        raise SettingsError("\n".join([f"wrong settings in {where}:", *lines])) from error


def open_target(
    settings: Settings,
    outbox: OutboxIdentity,
    kafka: KafkaSettings,
    stop: threading.Event,
    *,
    holder: str,
    create_topics: bool,
) -> Context:
    """Return the context of a replay once the target answers. Raises SettingsError, UnavailableError, StoppedError."""
    check_options(kafka, settings.publisher.transaction_timeout_ms)
    topics = Topics(
        kafka_client.admin_client(kafka),
        timeout_s=kafka.request_timeout_s,
        create=create_topics,
        give_up=stop.is_set,
    )
    try:
        cluster_id = topics.cluster_id()
    except KafkaException as error:
        raise _unauthorised(error) or UnavailableError(
            f"the replay's target (--to-servers, --to-config or [kafka]): {kafka_client.no_answer(kafka, error.args[0])}"
        ) from error
    return Context(
        settings=name_outbox(settings, outbox.outbox_uuid).model_copy(update={"kafka": kafka}),
        outbox=outbox,
        timelines=Timelines(outbox.server_timeline),
        identity=Identity(outbox.outbox_uuid, cluster_id),
        topics=topics,
        progress_topic=f"{progress_topic(settings.publisher.progress_topic, outbox.outbox_uuid)}-replays",
        holder=holder,
        stop=stop,
    )


def check_target(context: Context, replay: Replay) -> None:
    """Raise StoppedError unless this is still the cluster for which the replay was created."""
    found = context.topics.cluster_id()
    if found != replay.target_cluster_id:
        raise StoppedError(
            StopReason.OTHER_CLUSTER,
            f"replay {replay.replay_id} sends to Kafka cluster {replay.target_cluster_id}, but "
            f"{context.settings.kafka.bootstrap_servers} leads to {found}. Name the right one: `publisher replay go-on "
            f"{replay.replay_id} --to-servers HOST:PORT`, or --to-config FILE",
        )


def allowed_topics(replay: Replay, publisher: PublisherSettings) -> OutputTopics:
    """Return the topics that the replay may send to: the topics that a person has named, and the topics of the settings for outputs that
    keep their own topic.
    """
    targets = replay.targets
    named = targets.named if targets.every is not None or publisher.output_topics else ()
    others = () if targets.every is not None else publisher.output_topics
    return OutputTopics([*others, *named], publisher.progress_topic)


class WrittenTopics:
    """The ids of the topics that a replay has written to so far. Its progress record carries them. One object for each `open`."""

    def __init__(self, topics: Topics, replay_id: int, ids: dict[str, str]) -> None:
        self._topics = topics
        self._replay_id = replay_id
        self.ids = ids
        """{topic: its id}"""

    def check(self, ids: Mapping[str, str]) -> None:
        """Raise StoppedError unless every topic written so far still has its id; add new topics."""
        # Checks all topics written so far, not only those of this chunk, because rows sent to them count as sent.
        described = self._topics.describe(self.ids)
        now = {name: topic.topic_id for name, topic in described.items()} | dict(ids)
        for name, known in self.ids.items():
            if now[name] != known:
                raise StoppedError(
                    StopReason.TARGET_TOPIC_REPLACED,
                    f"topic {name!r} had the id {known}, now it is {now[name]}: it was deleted and created again, and what replay "
                    f"{self._replay_id} has sent to it is gone. `publisher replay cancel {self._replay_id}` and start a new one",
                )
        self.ids = now


def check_topics(context: Context, names: Iterable[str]) -> None:
    """Raise StoppedError if a topic is missing, UnavailableError if a topic cannot be written at the moment, KafkaException."""
    try:
        context.topics.describe(names)
    except StoppedError as error:
        raise explained(error, context) from error


def explained(error: Exception, context: Context) -> Exception:
    """Return a delivery's failure as a replay raises it: StoppedError if somebody must act first, UnavailableError for a stop that may end
    by itself, else the error itself."""
    if not isinstance(error, StoppedError):
        return _unauthorised(error) or error
    if isinstance(error, TopicMissingError):
        return StoppedError(
            StopReason.TARGET_TOPIC_MISSING,
            f"topic {error.topic!r} does not exist at {context.settings.kafka.bootstrap_servers}. Create it, or say --create-topics to "
            "have it made with the broker's defaults",
        )
    if error.retry and error.reason is not StopReason.PROGRESS_NOT_COMPACTED:
        return UnavailableError(str(error))
    return error


def _unauthorised(error: Exception) -> StoppedError | None:
    if not isinstance(error, KafkaException) or error.args[0].code() not in UNAUTHORISED:
        return None
    return StoppedError(
        StopReason.NOT_AUTHORISED,
        f"the target Kafka refuses this replay: {error.args[0].str()}. Grant the missing right (its topics, its transactional id "
        "`<prefix>-<outbox uuid>-replay-<id>`, its progress topic), or name the right credentials with --to-config",
    )
