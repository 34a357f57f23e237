"""docs/recovery.md, played step by step with real servers, real processes and real kills: every number in its tables is compared."""

import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson
import psycopg
import pytest
from confluent_kafka import Producer, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
)
from psycopg import sql

from db.topic_ids import topic_id_text
from devstack.kafka import Kafka, KafkaServer
from devstack.topics import create_topics
from tests.acceptance import verdict
from tests.acceptance.pipeline import environment
from tests.acceptance.service import Service, wait_until
from tests.acceptance.walkthrough import INPUT, OUTPUT, Page, Places
from tests.integration.publisher.harness import query

EVENT_TYPES = {"start": "start_event", "entry": "entry_event", "end": "end_event"}


class Walk:
    """Both services, the input's Kafka and the outputs' Kafka, and the page that says what they do."""

    def __init__(self, dsn: str, bootstrap: str, outputs: Kafka, prefix: str, folder: Path) -> None:
        self.page = Page.read()
        self.outputs = outputs
        self._bootstrap = bootstrap
        self._dsn = dsn
        create_topics(bootstrap, {prefix + INPUT: (2, {})})
        create_topics(outputs.bootstrap_servers, {prefix + OUTPUT: (1, {})})
        ((outbox_uuid,),) = query(dsn, "SELECT outbox_uuid FROM outbox.identity")
        admin = AdminClient({"bootstrap.servers": bootstrap})
        described = admin.describe_topics(TopicCollection([prefix + INPUT]))
        self.places = Places(
            dsn=dsn,
            checkpoint=folder / "checkpoint",
            input_topic=prefix + INPUT,
            input_topic_id=topic_id_text(described[prefix + INPUT].result().topic_id),
            output_bootstrap=outputs.bootstrap_servers,
            output_topic=prefix + OUTPUT,
            progress_topic=f"outbox-progress-{outbox_uuid}",
        )
        scratch = folder / "scratch"
        scratch.mkdir()
        settings = environment(
            {
                "postgres": {"dsn": dsn},
                "source": {"topics": [prefix + INPUT], "consumer_group": f"{prefix}job"},
                # The walk takes longer than a session would.
                "session": {"timeout_s": 86_400},
                "transform": {"function": "tests.acceptance.walkthrough:letters"},
                "job": {
                    "checkpoint": str(self.places.checkpoint),
                    "master": "local[1]",
                    "driver_memory": "1g",
                    "trigger_ms": 100,
                    "buckets": 2,
                    "shuffle_partitions": 1,
                    "heartbeat_s": 0.5,
                    "owner_timeout_s": 3.0,
                    "spark_options": {
                        "spark.local.dir": str(scratch),
                        "spark.sql.streaming.stateStore.compression.codec": "zstd",  # the test reads it
                    },
                },
                "publisher": {"lanes": 1, "poll_ms": 200, "idle_progress_s": 0.5, "lease_s": 5.0},
            }
        ) | {
            "TMPDIR": str(scratch),
            "JAVA_TOOL_OPTIONS": f"-Djava.io.tmpdir={scratch} -XX:TieredStopAtLevel=1",
        }
        kafka = "OUTBOX_KAFKA__BOOTSTRAP_SERVERS"
        self.job = Service("spark_job", settings | {kafka: bootstrap}, folder / "spark-job.log")
        self.publisher = Service(
            "publisher", settings | {kafka: outputs.bootstrap_servers}, folder / "publisher.log"
        )

    def feed(self, partition: int, letters: str) -> None:
        """Write the page's events with these letters to a partition; one request, so that no batch can begin in between."""
        events = dict(
            zip(
                self.page.column("event", "event"),
                self.page.column("event", f"partition {partition}"),
                strict=True,
            )
        )
        producer = Producer({"bootstrap.servers": self._bootstrap, "linger.ms": 50})
        for letter in letters:
            kind, key = events[letter].split()
            value = {"session_key": key, "event_type": EVENT_TYPES[kind], "letter": letter}
            producer.produce(self.places.input_topic, orjson.dumps(value), key, partition)
        assert producer.flush(30) == 0

    def job_step(self, step: str) -> None:
        """Compare what the page says of a step of the job."""
        self.page.compare("job step", step, self.places.job())

    def publisher_step(self, step: str, *, kafka: bool = True, log: bool = False) -> None:
        """Compare what the page says of a step of the publisher; `log`: the unreadable records, too."""
        found = dict(self.places.publisher(kafka=kafka))
        if log:
            unreadable = len(self.places.in_the_log()) - len(self.places.visible())
            found["in the log, not readable"] = str(unreadable)
        self.page.compare("publisher step", step, found)

    def wait_for(self, condition: Callable[[], object], what: str, *alive: Service) -> None:
        """Return once the condition holds; fail when it does not, or when one of `alive` ends before."""

        def holds() -> object:
            for service in alive:
                assert service.is_alive(), f"{what} did not happen, because {service.tail()}"
            return condition()

        wait_until(
            holds, lambda: f"{what}\n{self.job.tail()}\n{self.publisher.tail()}", timeout_s=180, poll_s=0.005
        )

    def end_job(self) -> None:
        """Power off: the job and all that it started, at once."""
        self.job.crash()
        self.wait_until_job_is_gone()

    def wait_until_job_is_gone(self) -> None:
        """Wait until Postgres has ended the dead job's connections, and with them what was half written."""
        self.wait_for(
            lambda: query(
                self._dsn,
                "SELECT count(*) = 0 FROM pg_stat_activity WHERE datname = current_database()"
                " AND application_name LIKE 'spark-job%%'",
            )[0][0],
            "the end of the job's connections",
        )

    def run_job_until_between_commits(self, *, batch: int, **settings: str) -> None:
        """Start the job and kill it when the outbox has this batch and Spark has not committed it."""
        with self.locked("batch"):
            self.job.start(**settings)
            self.wait_for_blocked(self.job, "spark-job")
            # Postgres' commit needs the driver, which is Python; Spark's needs the JVM.
            self.job.started("java").send_signal(signal.SIGSTOP)
        self.wait_for(
            lambda: query(self._dsn, "SELECT 1 FROM outbox.batch WHERE batch_id = %s", batch),
            f"the commit of batch {batch}",
            self.job,
        )
        self.end_job()

    def delete_checkpoint(self) -> None:
        """Delete the checkpoint directory with all that is in it."""
        shutil.rmtree(self.places.checkpoint)

    @contextmanager
    def refused_progress(self) -> Iterator[None]:
        """Within the block Kafka takes the publisher's events but not its progress record, which comes last before the commit."""
        topic = self.places.progress_topic
        create_topics(
            self.outputs.bootstrap_servers,
            {topic: (1, {"cleanup.policy": "compact", "min.insync.replicas": "2"})},
        )
        yield
        enough = ConfigEntry("min.insync.replicas", "1", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[enough])
        admin = AdminClient({"bootstrap.servers": self.outputs.bootstrap_servers})
        for answer in admin.incremental_alter_configs([resource]).values():
            answer.result(30)

    def stop(self) -> None:
        """SIGTERM to both services; they end in order and leave nothing held."""
        assert self.job.terminate() == 0, self.job.tail()
        assert self.publisher.terminate() == 0, self.publisher.tail()
        verdict.assert_nothing_held(self._dsn)

    def wait_for_finished(self, spark_batch: int) -> None:
        """Wait until Spark has committed a batch."""
        self.wait_for(
            lambda: self.places.newest("commits") == spark_batch, f"the end of batch {spark_batch}", self.job
        )

    def wait_for_mirror(self, batch: int) -> None:
        """Wait until the publisher has recorded that it came to the end of a batch of the ledger."""
        self.wait_for(
            lambda: query(self._dsn, "SELECT 1 FROM outbox.lane WHERE cursor_batch = %s", batch),
            f"the delivery of batch {batch}",
            self.publisher,
        )

    @contextmanager
    def locked(self, table: str) -> Iterator[None]:
        """Within the block nobody can write to a table."""
        with psycopg.connect(self._dsn) as blocker:
            blocker.execute(sql.SQL("LOCK TABLE {} IN SHARE MODE").format(sql.Identifier("outbox", table)))
            yield

    def wait_for_blocked(self, service: Service, application: str) -> None:
        """Wait until a service waits for such a lock."""
        self.wait_for(
            lambda: query(
                self._dsn,
                "SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
                " AND application_name LIKE %s AND wait_event_type = 'Lock'",
                application,
            ),
            f"{service.module} that waits for a lock",
            service,
        )

    def compare_records(self) -> None:
        """Compare the ledger, the outputs and the generations so far."""
        for kind, rows in (
            ("batch", self.places.ledger()),
            ("outbox-id", self.places.outputs()),
            ("generation", self.places.generations()),
        ):
            for key, row in rows.items():
                self.page.compare(kind, key, row)

    def compare_buckets(self, generation: int) -> None:
        """Compare a generation's bucket summaries."""
        for key, row in self.places.buckets(generation).items():
            self.page.compare("bucket summary", key, row)


@pytest.fixture
def output_kafka(tmp_path: Path) -> Iterator[Kafka]:
    """A Kafka of the test's own: it will be killed."""
    with Kafka(tmp_path / "output-kafka", heap="256m") as server:
        yield server


def test_the_walk_through_shows_what_happens(
    database: str, kafka: KafkaServer, output_kafka: Kafka, topic_prefix: str, tmp_path: Path
) -> None:
    walk = Walk(database, kafka.bootstrap_servers, output_kafka, topic_prefix, tmp_path)
    try:
        one_batch_killed_at_every_moment(walk)
        the_publisher_killed_on_both_sides_of_its_commit(walk)
        the_checkpoint_lost_twice(walk)
        kafka_away_at_the_output(walk)
    except BaseException:
        print(walk.job.tail(), walk.publisher.tail(), sep="\n")
        raise
    finally:
        walk.job.destroy()
        walk.publisher.destroy()
    walk.page.assert_true()


def one_batch_killed_at_every_moment(walk: Walk) -> None:
    """Steps 1 to 6."""
    walk.feed(0, "A")
    walk.feed(1, "A")
    walk.job.start()
    walk.wait_for_finished(0)
    walk.job_step("1")

    walk.end_job()
    walk.feed(0, "BC")
    walk.feed(1, "BC")
    walk.job_step("2")

    with walk.locked("batch"):
        walk.job.start()
        walk.wait_for(lambda: walk.places.newest("offsets") == 1, "the plan of Spark batch 1", walk.job)
        walk.job.crash()
    walk.wait_until_job_is_gone()
    walk.job_step("3")

    with walk.locked("batch"):
        walk.job.start()
        walk.wait_for_blocked(walk.job, "spark-job")
        walk.job.crash()
    walk.wait_until_job_is_gone()
    walk.job_step("4")

    walk.run_job_until_between_commits(batch=2)
    walk.job_step("5")

    walk.job.start()
    walk.wait_for_finished(1)
    walk.job_step("6")
    walk.compare_records()
    walk.compare_buckets(1)
    walk.end_job()


def the_publisher_killed_on_both_sides_of_its_commit(walk: Walk) -> None:
    """Steps 7 to 9."""
    with walk.refused_progress():
        walk.publisher.start()
        walk.wait_for(lambda: len(walk.places.in_the_log()) == 2, "two records in the log", walk.publisher)
        walk.publisher.crash()
    walk.publisher_step("7", log=True)

    with walk.locked("delivery"):
        walk.publisher.start()
        walk.wait_for_blocked(walk.publisher, "publisher%")
        walk.publisher.crash()
    walk.publisher_step("8", log=True)

    walk.publisher.start()
    walk.wait_for_mirror(2)
    walk.publisher_step("9", log=True)


def the_checkpoint_lost_twice(walk: Walk) -> None:
    """Steps 10 to 14."""
    walk.delete_checkpoint()
    walk.feed(0, "DE")
    walk.feed(1, "D")
    walk.job_step("10")

    walk.run_job_until_between_commits(batch=3, OUTBOX_JOB__MAX_EVENTS_PER_BATCH="2")
    walk.job_step("11")
    walk.wait_for_mirror(3)

    walk.delete_checkpoint()
    walk.job_step("12")

    walk.job.start()
    walk.wait_for_finished(0)
    walk.job_step("13")
    walk.compare_records()
    walk.compare_buckets(3)
    walk.wait_for_mirror(4)
    walk.publisher_step("14")


def kafka_away_at_the_output(walk: Walk) -> None:
    """Steps 15 and 16; then both services stop in order."""
    walk.outputs.kill()
    walk.feed(1, "E")
    walk.wait_for_finished(1)
    walk.job_step("15")
    walk.publisher_step("15", kafka=False)

    walk.outputs.start()
    walk.wait_for_mirror(5)
    walk.publisher_step("16")
    walk.compare_records()
    walk.stop()
