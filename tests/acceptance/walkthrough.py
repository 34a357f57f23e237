"""What docs/recovery.md tells: both services, the input's Kafka and the outputs' Kafka, to be fed, killed and compared step by step."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson
from confluent_kafka import Producer, TopicCollection
from confluent_kafka.admin import AdminClient

from db.fault_points import Action, Fault, Plan
from db.topic_ids import topic_id_text
from devstack.kafka import Kafka
from devstack.topics import create_topics
from tests.acceptance import verdict
from tests.acceptance.options import environment
from tests.acceptance.page_tables import Page
from tests.acceptance.places import Places
from tests.acceptance.service import Service, wait_until
from tests.acceptance.transforms import INPUT, LETTERS
from tests.integration.publisher.harness import query

EVENT_TYPES = {"start": "start_event", "entry": "entry_event", "end": "end_event"}
_TIMEOUT_S = 1_200.0


class Walk:
    """The servers and services of one walk, and the page that says what they do."""

    def __init__(self, dsn: str, bootstrap: str, outputs: Kafka, prefix: str, folder: Path) -> None:
        self.page = Page.read("docs/recovery.md")
        self.outputs = outputs
        self._bootstrap = bootstrap
        self._dsn = dsn
        create_topics(bootstrap, {prefix + INPUT: (2, {})})
        create_topics(outputs.bootstrap_servers, {prefix + LETTERS: (1, {})})
        ((outbox_uuid,),) = query(dsn, "SELECT outbox_uuid FROM outbox.identity")
        admin = AdminClient({"bootstrap.servers": bootstrap})
        described = admin.describe_topics(TopicCollection([prefix + INPUT]))
        self.places = Places(
            dsn=dsn,
            checkpoint=folder / "checkpoint",
            input_topic=prefix + INPUT,
            input_topic_id=topic_id_text(described[prefix + INPUT].result().topic_id),
            output_bootstrap=outputs.bootstrap_servers,
            output_topic=prefix + LETTERS,
            progress_topic=f"outbox-progress-{outbox_uuid}",
        )
        self._faults = Plan(folder / "faults.json")
        scratch = folder / "scratch"
        scratch.mkdir()
        settings = environment(
            {
                "postgres": {"dsn": dsn},
                "source": {"topics": [prefix + INPUT], "consumer_group": f"{prefix}job"},
                # The walk takes longer than a session would.
                "session": {"timeout_s": 86_400},
                "transform": {"function": "tests.acceptance.transforms:letters"},
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
                "testing": {"fault_file": str(self._faults.file)},
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
            holds,
            lambda: f"{what}\n{self.job.tail()}\n{self.publisher.tail()}",
            timeout_s=_TIMEOUT_S,
            poll_s=0.05,
        )

    def run_job_until(self, point: str, **settings: str) -> None:
        """Start the job and kill it, with all that it started, at this point of its next batch."""
        with self.held(self.job, point):
            self.job.start(**settings)
        self.kill_job()

    def run_publisher_until(self, point: str) -> None:
        """Start the publisher and kill it at this point of its next transaction."""
        with self.held(self.publisher, point):
            self.publisher.start()
        self.publisher.crash()

    @contextmanager
    def held(self, service: Service, point: str) -> Iterator[None]:
        """The service that the block starts stands still at the point when the block has ended."""
        fault = Fault(point, Action.HOLD)
        self._faults.write(fault)
        yield
        self.wait_for(lambda: (fault, service.pid) in self._faults.fired(), point, service)

    def kill_job(self) -> None:
        """SIGKILL to the job and all that it started, at once; returns when Postgres has ended its transaction, too."""
        self.job.crash()
        self.wait_for(
            lambda: query(
                self._dsn,
                "SELECT count(*) = 0 FROM pg_stat_activity WHERE datname = current_database()"
                " AND application_name LIKE 'spark-job%%'",
            )[0][0],
            "the end of the job's connections",
        )

    def delete_checkpoint(self) -> None:
        """Delete the checkpoint directory with all that is in it."""
        shutil.rmtree(self.places.checkpoint)

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

    def compare_records(self) -> None:
        """Compare the ledger, the outputs, the generations and the starts of the job so far."""
        for kind, rows in (
            ("batch", self.places.ledger()),
            ("outbox-id", self.places.outputs()),
            ("generation", self.places.generations()),
            ("start of the job", self.places.runs()),
        ):
            for key, row in rows.items():
                self.page.compare(kind, key, row)

    def compare_buckets(self, generation: int) -> None:
        """Compare a generation's bucket summaries."""
        for key, row in self.places.buckets(generation).items():
            self.page.compare("bucket summary", key, row)
