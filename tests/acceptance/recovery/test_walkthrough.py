"""docs/recovery.md, played step by step with real servers, real processes and real kills: every number in its tables is compared."""

import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson
import pytest
from confluent_kafka import Producer, TopicCollection
from confluent_kafka.admin import AdminClient

from devstack.kafka import Kafka, KafkaServer
from devstack.topics import create_topics
from service.kafka.topic_ids import topic_id_text
from service.lifecycle.fault_points import Action, Fault, FaultPlan
from tests.support.pages.compared import ComparedPage
from tests.support.pipeline import verdict
from tests.support.pipeline.options import environment
from tests.support.pipeline.recovery_tables import RecoveryTables
from tests.support.pipeline.transforms import INPUT, LETTERS
from tests.support.processes.commands import run_command
from tests.support.processes.service import Service, while_alive
from tests.support.queries import query
from tests.support.waiting import wait_until

EVENT_TYPES = {"start": "start_event", "entry": "entry_event", "end": "end_event"}
_TIMEOUT_S = 1_200.0


class Walkthrough:
    """The servers and services of one walk, and the page that says what they do."""

    def __init__(self, dsn: str, bootstrap: str, outputs: Kafka, prefix: str, folder: Path) -> None:
        self.page = ComparedPage.read("docs/recovery.md")
        self.outputs = outputs
        self._bootstrap = bootstrap
        self._dsn = dsn
        self._folder = folder
        create_topics(bootstrap, {prefix + INPUT: (2, {})})
        create_topics(outputs.bootstrap_servers, {prefix + LETTERS: (1, {})})
        ((outbox_uuid,),) = query(dsn, "SELECT outbox_uuid FROM outbox.identity")
        admin = AdminClient({"bootstrap.servers": bootstrap})
        described = admin.describe_topics(TopicCollection([prefix + INPUT]))
        self.tables = RecoveryTables(
            dsn=dsn,
            cache=folder / "cache",
            log=folder / "spark-job.log",
            input_topic=prefix + INPUT,
            input_topic_id=topic_id_text(described[prefix + INPUT].result().topic_id),
            output_bootstrap=outputs.bootstrap_servers,
            output_topic=prefix + LETTERS,
            progress_topic=f"outbox-progress-{outbox_uuid}",
        )
        self._faults = FaultPlan(folder / "faults.json")
        # Its path is short enough for sockets.
        scratch = self._scratch = tempfile.mkdtemp(prefix="outbox-")
        settings = environment(
            {
                "postgres": {"dsn": dsn},
                "source": {"topics": [prefix + INPUT], "consumer_group": f"{prefix}job"},
                # The walk takes longer than a session would.
                "session": {"timeout_s": 86_400},
                "transform": {"function": "tests.support.pipeline.transforms:letters"},
                "job": {
                    "cache": str(self.tables.cache),
                    "master": "local[1]",
                    "driver_memory": "1g",
                    "heartbeat_s": 0.5,
                    "owner_timeout_s": 30.0,
                },
                "testing": {"fault_file": str(self._faults.file)},
                "publisher": {"lanes": 1, "poll_ms": 200, "idle_progress_s": 0.5, "lease_s": 5.0},
            }
        ) | {
            "TMPDIR": scratch,
            "JAVA_TOOL_OPTIONS": f"-Djava.io.tmpdir={scratch} -XX:TieredStopAtLevel=1",
        }
        kafka = "OUTBOX_KAFKA__BOOTSTRAP_SERVERS"
        self._environment = settings | {kafka: bootstrap}
        self.job = Service("spark_job", self._environment, self.tables.log)
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
            producer.produce(self.tables.input_topic, orjson.dumps(value), key, partition)
        assert producer.flush(30) == 0

    def job_step(self, step: str) -> None:
        """Compare what the page says of a step of the job."""
        self.page.compare("job step", step, self.tables.job())

    def publisher_step(self, step: str, *, kafka: bool = True, log: bool = False) -> None:
        """Compare what the page says of a step of the publisher; `log`: the unreadable records, too."""
        found = dict(self.tables.publisher(kafka=kafka))
        if log:
            unreadable = len(self.tables.in_the_log()) - len(self.tables.visible())
            found["in the log, not readable"] = str(unreadable)
        self.page.compare("publisher step", step, found)

    def wait_for(self, condition: Callable[[], object], what: str, *alive: Service) -> None:
        """Return once the condition holds; fail when it does not, or when one of `alive` ends before."""

        wait_until(
            while_alive(condition, what, alive),
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
        fired = len(self._faults.fired())
        self._faults.write(Fault(point, Action.HOLD))
        yield
        self.wait_for(lambda: len(self._faults.fired()) > fired, point, service)

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

    def lose_cache(self) -> None:
        """Delete the folder of the open sessions with all that is in it."""
        shutil.rmtree(self.tables.cache)

    def command(self, text: str, **settings: str) -> str:
        """Run the page's next command, which must be this one; return what it printed. `settings`: OUTBOX_ variables of it."""
        done = run_command(
            "spark_job",
            *self.page.next_command(text),
            variables=self._environment | settings,
            folder=self._folder,
            timeout_s=_TIMEOUT_S,
        )
        assert done.returncode == 0, f"{text}: {done.stdout}\n{done.stderr}"
        return done.stdout

    def run_as_told(self, text: str, **settings: str) -> None:
        """Start the job by the page's next command, which must be this one."""
        self.job.start(*self.page.next_command(text)[1:], **settings)

    def stop_as_told(self) -> None:
        """Stop the job by the page's next command."""
        self.command("spark-job stop")
        assert self.job.wait() == 0, self.job.tail()

    def destroy(self) -> None:
        """End whatever is left of both services."""
        self.job.destroy()
        self.publisher.destroy()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def stop(self) -> None:
        """SIGTERM to both services; they end in order and leave nothing held."""
        assert self.job.terminate() == 0, self.job.tail()
        assert self.publisher.terminate() == 0, self.publisher.tail()
        verdict.assert_nothing_held(self._dsn)

    def wait_for_batch(self, batch: int) -> None:
        """Wait until the ledger has a batch and the job has reported it."""
        self.wait_for(
            lambda: re.search(rf"batch_committed\b.*?\bbatch={batch}\b", self.job.log()),
            f"batch {batch}",
            self.job,
        )

    def wait_for_start(self, number: int) -> None:
        """Wait until the job has started so many times."""
        self.wait_for(lambda: len(self.tables.events_read_again()) == number, f"start {number}", self.job)

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
            ("batch", self.tables.ledger()),
            ("outbox-id", self.tables.outputs()),
            ("generation", self.tables.generations()),
            ("start of the job", self.tables.runs()),
        ):
            for key, row in rows.items():
                self.page.compare(kind, key, row)

    def compare_fork(self, dsn: str) -> None:
        """Compare the generations of another outbox."""
        for key, row in self.tables.generations(dsn).items():
            self.page.compare("generation of the fork", key, row)


MENDED = {"OUTBOX_TRANSFORM__FUNCTION": "tests.support.pipeline.transforms:capitals"}


@pytest.fixture
def output_kafka(tmp_path: Path) -> Iterator[Kafka]:
    """A Kafka of the test's own: it will be killed."""
    server = Kafka(tmp_path / "output-kafka", fast=True, heap="256m")
    server.start()
    yield server
    server.destroy()


@pytest.mark.guarantee(35, 136)
@pytest.mark.faults
@pytest.mark.timeout(
    7_200
)  # ten starts: a minute or two on a quiet machine, an hour on one that is busy with other tests
def test_the_walk_through_shows_what_happens(
    new_database: Callable[[], str],
    kafka: KafkaServer,
    output_kafka: Kafka,
    topic_prefix: str,
    tmp_path: Path,
) -> None:
    walkthrough = Walkthrough(new_database(), kafka.bootstrap_servers, output_kafka, topic_prefix, tmp_path)
    try:
        one_batch_killed_at_every_moment(walkthrough)
        the_publisher_killed_on_both_sides_of_its_commit(walkthrough)
        the_disk_lost_twice(walkthrough)
        kafka_away_at_the_output(walkthrough)
        back_to_the_savepoint(walkthrough, new_database())
        what_a_start_does_not_decide_alone(walkthrough)
    except BaseException:
        print(walkthrough.job.tail(), walkthrough.publisher.tail(), *walkthrough.page.differences, sep="\n")
        raise
    finally:
        walkthrough.destroy()
    walkthrough.page.assert_true()


def one_batch_killed_at_every_moment(walkthrough: Walkthrough) -> None:
    """Steps 1 to 7."""
    walkthrough.feed(0, "A")
    walkthrough.feed(1, "A")
    walkthrough.job.start()
    walkthrough.wait_for_batch(1)
    walkthrough.job_step("1")

    walkthrough.kill_job()
    walkthrough.feed(0, "BC")
    walkthrough.feed(1, "BC")
    walkthrough.job_step("2")

    for step, point in enumerate(
        ("query.before_action", "task.after_cache", "sink.after_ledger", "sink.after_commit"), 3
    ):
        walkthrough.run_job_until(point)
        walkthrough.job_step(str(step))

    walkthrough.job.start()
    walkthrough.wait_for_start(6)
    walkthrough.job_step("7")


def the_publisher_killed_on_both_sides_of_its_commit(walkthrough: Walkthrough) -> None:
    """Steps 8 to 10."""
    walkthrough.run_publisher_until("transaction.before_commit")
    walkthrough.publisher_step("8", log=True)

    walkthrough.run_publisher_until("transaction.after_commit")
    walkthrough.publisher_step("9", log=True)

    walkthrough.publisher.start()
    walkthrough.wait_for_mirror(2)
    walkthrough.publisher_step("10", log=True)


def the_disk_lost_twice(walkthrough: Walkthrough) -> None:
    """Steps 11 to 15."""
    walkthrough.command("spark-job savepoint create before-deploy")
    walkthrough.kill_job()
    walkthrough.lose_cache()
    walkthrough.feed(0, "DE")
    walkthrough.feed(1, "DE")
    walkthrough.job_step("11")

    walkthrough.run_job_until("query.after_batch", OUTBOX_JOB__MAX_EVENTS_PER_BATCH="2")
    walkthrough.job_step("12")
    walkthrough.wait_for_mirror(3)

    walkthrough.lose_cache()
    walkthrough.job_step("13")

    walkthrough.job.start()
    walkthrough.wait_for_batch(4)
    walkthrough.job_step("14")
    walkthrough.compare_records()
    walkthrough.wait_for_mirror(4)
    walkthrough.publisher_step("15")


def kafka_away_at_the_output(walkthrough: Walkthrough) -> None:
    """Steps 16 and 17."""
    walkthrough.outputs.kill()
    walkthrough.feed(0, "F")
    walkthrough.wait_for_batch(5)
    walkthrough.job_step("16")
    walkthrough.publisher_step("16", kafka=False)

    walkthrough.outputs.start()
    walkthrough.wait_for_mirror(5)
    walkthrough.publisher_step("17")


def back_to_the_savepoint(walkthrough: Walkthrough, other_dsn: str) -> None:
    """Step 18, and a fork."""
    walkthrough.stop_as_told()
    walkthrough.command("spark-job savepoint restore before-deploy --policy reissue --yes")
    walkthrough.run_as_told("spark-job run", **MENDED)
    walkthrough.wait_for_batch(6)
    walkthrough.job_step("18")
    walkthrough.compare_records()
    walkthrough.command("spark-job savepoint export before-deploy --output before-deploy.json")
    walkthrough.command("spark-job fork before-deploy.json", OUTBOX_POSTGRES__DSN=other_dsn)
    walkthrough.compare_fork(other_dsn)


def what_a_start_does_not_decide_alone(walkthrough: Walkthrough) -> None:
    """A changed assembly; then both services stop in order."""
    walkthrough.stop_as_told()
    other = {**MENDED, "OUTBOX_SESSION__TIMEOUT_S": "43200"}
    walkthrough.run_as_told("spark-job run", **other)
    assert walkthrough.job.wait() == 5, walkthrough.job.tail()
    (told,) = walkthrough.page.texts
    assert " ".join(told.split()).removesuffix(".") in walkthrough.job.log()
    walkthrough.run_as_told("spark-job run --accept-changed-assembly", **other)
    walkthrough.wait_for_start(10)
    walkthrough.wait_for_mirror(6)
    walkthrough.compare_records()
    walkthrough.stop()
