"""How a job ends, or continues, where something fails: with an exit code, the cause and the way out, and exact afterwards."""

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import psutil
import pytest

from db.migrate import upgrade
from devstack.kafka import KafkaServer
from devstack.postgres import Postgres
from tests.support.paths import ROOT
from tests.support.pipeline.feed import clean, ends_of, starts_of, write
from tests.support.pipeline.options import Options
from tests.support.pipeline.pipeline import Pipeline
from tests.support.processes.service import Service
from tests.support.secured.kafka import PASSWORD, SecuredKafka, right
from tests.support.servers.replica import Replica

SECRET = "a-secret-of-the-keystore"
QUICK = {"OUTBOX_RESTART__DELAY_S": "0.1", "OUTBOX_RESTART__MAX_DELAY_S": "0.1"}
NO_RESTART = {"OUTBOX_RESTART__STRATEGY": "none"}
EDITED = """from tests.support.pipeline.transforms import twenty


def transform(session):
    return twenty(session)
"""


@pytest.mark.guarantee(116, 117, 118)
@pytest.mark.faults
@pytest.mark.timeout(3_600)
def test_a_batch_that_fails_is_made_smaller_and_each_failure_that_stays_ends_the_job_with_its_own_code(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    job = pipeline.job
    pipeline.publisher.start()
    write(pipeline.bootstrap, pipeline.input, starts_of(["killer"]))
    write(pipeline.bootstrap, pipeline.input, ends_of(["killer"]))

    # A failure that nobody knows: its kind and place are told, its text, which may quote an event, nowhere. No secret is in the list of
    # processes.
    options = json.dumps({"spark.ssl.keyPassword": SECRET})
    job.start(
        **NO_RESTART,
        OUTBOX_TRANSFORM__FUNCTION="tests.support.pipeline.transforms:odd",
        OUTBOX_JOB__SPARK_OPTIONS=options,
        **pipeline.armed,
    )
    # The first task starts Spark's Python workers, so that all there is can be seen.
    with pipeline.held_at("task.before_open"):
        assert "pyspark.daemon" in "".join(command_lines(job))
        assert SECRET not in "".join(command_lines(job))
    assert job.wait() == 10, job.tail()
    assert "a task raised tests.support.pipeline.transforms.OddError at transforms.py, line " in job.log()
    assert "spark.log" in job.log()
    log = (pipeline.cache / "spark.log").read_text("utf-8")
    assert "TaskRaisedError: tests.support.pipeline.transforms.OddError" in log
    assert ", in odd" in log
    for hidden in ("the oddness of", SECRET):
        assert hidden not in log + job.log()

    # A transform that always kills its worker: down to one event at a time, and then it gives up.
    job.start(
        **QUICK,
        OUTBOX_TRANSFORM__FUNCTION="tests.support.pipeline.transforms:deadly",
        OUTBOX_JOB__MAX_EVENTS_PER_BATCH="8",
    )
    assert job.wait() == 20, job.tail()
    assert set(pipeline.restarts()) == {"WorkerDiedError"}
    assert "a batch of a single event fails, too" in job.log()
    assert pipeline.ask("SELECT count(*) FROM outbox.session_output") == [(0,)]

    # Options that Kafka's Java client refuses.
    job.start(OUTBOX_KAFKA__JAVA_OPTIONS=json.dumps({"max.poll.records": "many"}))
    assert job.wait() == 2, job.tail()
    assert "Invalid value many for configuration max.poll.records" in job.log()

    # More in a batch than the driver takes: a quarter of it, until it fits.
    folder = tmp_path / "transforms"
    folder.mkdir()
    (folder / "edited_transform.py").write_text(EDITED, "utf-8")
    write(pipeline.bootstrap, pipeline.input, clean(91, 300))
    restarts = len(pipeline.restarts())
    job.start(
        **QUICK,
        OUTBOX_TRANSFORM__FUNCTION="edited_transform:transform",
        PYTHONPATH=os.pathsep.join([str(ROOT), str(folder)]),
        OUTBOX_JOB__SPARK_OPTIONS=json.dumps({"spark.driver.maxResultSize": "300k"}),
    )
    pipeline.wait_for_input(pipeline.expectation())
    assert set(pipeline.restarts()[restarts:]) == {"BatchTooLargeError"}
    assert pipeline.ask("SELECT max(input_events) < 4000, count(*) > 3 FROM outbox.batch") == [(True, True)]

    # The transform is edited while the job runs: a new worker refuses it.
    with (folder / "edited_transform.py").open("a", encoding="utf-8") as file:
        file.write("\n# another one\n")
    kill_workers(job)
    write(pipeline.bootstrap, pipeline.input, clean(92, 30))
    assert job.wait() == 18, job.tail()
    assert "edited_transform:transform was edited or replaced while the job runs" in job.log()

    job.start()
    pipeline.finish()


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[SecuredKafka]:
    """A broker that wants TLS, a password and rights."""
    (tmp_path / "guarded").mkdir()
    server = SecuredKafka(tmp_path / "guarded")
    with ExitStack() as cleanup:
        cleanup.callback(server.destroy)
        server.start()
        yield server


@pytest.mark.guarantee(109)
@pytest.mark.faults
@pytest.mark.timeout(1_800)
def test_one_section_serves_both_clients_and_what_kafka_refuses_either_of_them_ends_the_job(
    database: str, guarded: SecuredKafka, topic_prefix: str, tmp_path: Path
) -> None:
    secret = tmp_path / "secret.toml"
    options: Options = {
        "kafka": {
            "bootstrap_servers": guarded.secured_servers,
            "options": guarded.options(),
            "secret_options_file": str(secret),
        },
        "source": {"consumer_group": ""},
    }
    with Pipeline(database, guarded.bootstrap_servers, topic_prefix, tmp_path, options=options) as pipeline:
        job = pipeline.job
        pipeline.feed(95, sessions=30)
        secret.write_text('"sasl.password" = "wrong"\n', "utf-8")
        job.start()
        assert job.wait() == 16, job.tail()
        assert "refuse" in job.log()

        secret.write_text(f'"sasl.password" = "{PASSWORD}"\n', "utf-8")
        job.start()
        assert job.wait() == 16, job.tail()
        assert "It needs DescribeConfigs and Read" in job.log()

        for operation in ("describe", "describe_configs", "read"):
            guarded.allow(right("topic", pipeline.input, operation))
        # Spark alone is refused: what only it has said wrong. The start has succeeded, so it would be waited for (decision 33).
        wrong = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="publisher" password="wrong";'
        job.start(**NO_RESTART, OUTBOX_KAFKA__JAVA_OPTIONS=json.dumps({"sasl.jaas.config": wrong}))
        assert job.wait() == 16, job.tail()
        assert "Kafka refuses the credentials or a certificate of Spark's executors" in job.log()

        job.start()
        pipeline.wait_for_input(pipeline.expectation())
        assert PASSWORD not in "".join(command_lines(job))
        assert job.terminate() == 0, job.tail()
        assert PASSWORD not in job.log()
        assert pipeline.restarts() == []


@pytest.mark.guarantee(120)
@pytest.mark.faults
@pytest.mark.timeout(1_800)
def test_a_standby_is_asked_again_until_it_is_the_primary(
    kafka: KafkaServer, topic_prefix: str, tmp_path: Path
) -> None:
    primary = Postgres(tmp_path / "primary", fast=True)
    replica = Replica(tmp_path / "replica", primary, fast=True)
    with ExitStack() as cleanup:
        for server in (primary, replica):
            cleanup.callback(server.destroy)
            server.start()
        upgrade(primary.dsn())
        replica.wait_for_replay()
        options: Options = {"restart": {"delay_s": 0.2, "max_delay_s": 0.2}}
        with Pipeline(
            replica.dsn(), kafka.bootstrap_servers, topic_prefix, tmp_path, options=options
        ) as pipeline:
            pipeline.feed(96, sessions=30)
            pipeline.job.start()
            pipeline.wait_until(lambda: len(pipeline.restarts()) >= 3, "attempts", alive=(pipeline.job,))
            assert set(pipeline.restarts()) == {"UnavailableError"}
            assert "this Postgres is a standby or read-only" in pipeline.job.log()
            primary.kill()
            replica.promote()
            pipeline.connect()
            pipeline.publisher.start()
            pipeline.finish()


def command_lines(job: Service) -> list[str]:
    """What `ps` shows of the job and all that it has started."""
    lines = []
    for process in family(job):
        with suppress(psutil.NoSuchProcess):  # it has ended at this moment
            lines.append(" ".join(process.cmdline()))
    return lines


def kill_workers(job: Service) -> None:
    """Kill the Python workers; their daemon forks new ones."""
    for process in family(job):
        with suppress(psutil.NoSuchProcess):
            if "pyspark.daemon" in (process.parent() or process).cmdline():
                process.kill()


def family(job: Service) -> list[psutil.Process]:
    """The job and all that it has started."""
    mother = psutil.Process(job.pid)
    return [mother, *mother.children(recursive=True)]
