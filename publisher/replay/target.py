"""Where a replay sends to: the outbox's own Kafka cluster or another one."""

import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path

from confluent_kafka import KafkaException
from pydantic import ValidationError

from db import kafka_client
from db.errors import SettingsError, UnavailableError
from db.kafka_client import UNAUTHORISED
from db.settings import KafkaSettings, Settings
from publisher.checks import LaneStoppedError
from publisher.checks import Why as LaneWhy
from publisher.open_transactions import OpenTransactions
from publisher.replay.errors import ReplayStoppedError, Why
from publisher.replay.progress import ANEW, PARTITIONS
from publisher.topics import OutputTopic, Topics


def kafka_settings(settings: Settings, to_config: Path | None, to_servers: str | None) -> KafkaSettings:
    """Return how to reach the target: the [kafka] table of `to_config`, plain `to_servers`, else the outbox's own. Raises SettingsError."""
    if to_config is not None and to_servers is not None:
        raise SettingsError("--to-config and --to-servers both name the target cluster: give one of them")
    if to_servers is not None:
        return _kafka({"bootstrap_servers": to_servers}, "--to-servers")
    if to_config is None:
        return settings.kafka
    try:
        table = tomllib.loads(to_config.read_text("utf-8")).get("kafka")
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
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


class Target:
    """A cluster that answers."""

    def __init__(
        self,
        kafka: KafkaSettings,
        progress_topic: str,
        replication: int,
        *,
        create_topics: bool = False,
        give_up: Callable[[], bool] = lambda: False,
    ) -> None:
        """`progress_topic`: the replays' own there. Raises UnavailableError, SettingsError, ReplayStoppedError."""
        self.kafka = kafka
        self.progress_topic = progress_topic
        self._replication = replication
        self._give_up = give_up
        self._topics = Topics(
            kafka_client.admin_client(kafka),
            timeout_s=kafka.request_timeout_s,
            create=create_topics,
            give_up=give_up,
        )
        try:
            self.cluster_id = self._topics.cluster_id()
        except KafkaException as error:
            raise unauthorised(error) or UnavailableError(
                f"the target Kafka at {kafka.bootstrap_servers} does not answer: {error.args[0].str()}. Check --to-servers, "
                "--to-config or [kafka] bootstrap_servers"
            ) from error

    def check_cluster(self, replay_id: int, cluster_id: str) -> None:
        """Raise ReplayStoppedError unless this is still the cluster that the replay was made for."""
        self.cluster_id = self._topics.cluster_id()
        if self.cluster_id != cluster_id:
            raise ReplayStoppedError(
                Why.OTHER_CLUSTER,
                f"replay {replay_id} sends to Kafka cluster {cluster_id}, but {self.kafka.bootstrap_servers} leads to "
                f"{self.cluster_id}. Name the right one: `publisher replay go-on {replay_id} --to-servers HOST:PORT`, or "
                "--to-config FILE",
            )

    def describe(self, names: Iterable[str], *, newer_than: float = 0.0) -> dict[str, OutputTopic]:
        """Return every named topic.

        Raises ReplayStoppedError where one is missing, UnavailableError where one takes nothing for now, KafkaException.
        """
        try:
            return self._topics.describe(names, newer_than=newer_than)
        except LaneStoppedError as error:
            if error.why is not LaneWhy.OUTPUT_TOPIC_MISSING:
                if not error.retry:
                    raise
                raise UnavailableError(str(error)) from error
            raise ReplayStoppedError(
                Why.TOPIC_MISSING,
                f"of the topics {', '.join(sorted(names))} at least one does not exist at {self.kafka.bootstrap_servers}. Create "
                "it, or say --create-topics to have it made with the broker's defaults",
            ) from error

    def open_transactions(self) -> OpenTransactions:
        """Return what keeps a replay from partitions with open transactions."""
        return OpenTransactions(self._topics, self._give_up)

    def ensure_progress(self, replay_id: int, *, create: bool) -> None:
        """Make sure that the progress topic is there and compacted. Raises ReplayStoppedError, KafkaException."""
        try:
            self._topics.ensure_progress(self.progress_topic, PARTITIONS, self._replication, create=create)
        except LaneStoppedError as error:
            if error.why is LaneWhy.KAFKA_LOST:
                raise ReplayStoppedError(
                    Why.KAFKA_LOST,
                    f"the progress topic {self.progress_topic} does not exist at {self.kafka.bootstrap_servers}, though replay "
                    f"{replay_id} has sent before: the target was lost or rebuilt, or the topic was deleted. "
                    f"{ANEW.format(id=replay_id)}",
                ) from error
            raise ReplayStoppedError(
                Why.KAFKA_LOST,
                f"topic {self.progress_topic} at {self.kafka.bootstrap_servers} is not compacted, so Kafka would delete the "
                f"place of replay {replay_id} after a while. Set cleanup.policy=compact on it, then "
                f"`publisher replay go-on {replay_id}`",
            ) from error

    def high_watermark(self, partition: int) -> int:
        """Return the end of a partition of the progress topic as a read_uncommitted reader sees it."""
        return self._topics.high_watermark(self.progress_topic, partition)


def unauthorised(error: Exception) -> ReplayStoppedError | None:
    """Return what to say where trying again cannot help before somebody grants a right, None for every other failure."""
    if not isinstance(error, KafkaException) or error.args[0].code() not in UNAUTHORISED:
        return None
    return ReplayStoppedError(
        Why.NOT_AUTHORISED,
        f"the target Kafka refuses this replay: {error.args[0].str()}. Grant the missing right (its topics, its transactional id "
        "`<prefix>-<outbox uuid>-replay-<id>`, its progress topic), or name the right credentials with --to-config",
    )
