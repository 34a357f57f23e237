"""From the release before to this one while events come in: schema, publisher, job. Nothing is lost, repeated or reordered.

Both are wheels in environments of their own. The order is that of docs/upgrade.md.
"""

import shutil
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from db.migrate import HEAD, current
from devstack.databases import PostgresServer
from devstack.kafka import KafkaServer
from tests.support.paths import ROOT
from tests.support.pipeline import transforms
from tests.support.pipeline.options import Options
from tests.support.pipeline.pipeline import Pipeline
from tests.support.processes.service import Service
from tests.support.releases import PREVIOUS, Installed, install, tree_of

MIGRATE = "import sys; from db.migrate import upgrade; upgrade(sys.argv[1])"


@pytest.fixture
def before(tmp_path: Path) -> Installed:
    """The release before."""
    return install(tree_of(PREVIOUS, tmp_path / "tree"), tmp_path / "before")


@pytest.fixture
def now(tmp_path: Path) -> Installed:
    """This tree."""
    return install(ROOT, tmp_path / "now")


@pytest.fixture
def old_database(postgres: PostgresServer, before: Installed, tmp_path: Path) -> Iterator[str]:
    """An empty outbox of the release before."""
    name = f"test_{uuid.uuid4().hex}"
    dsn = postgres.create_database(name)
    made = before.run("python", "-c", MIGRATE, dsn, folder=tmp_path)
    assert made.returncode == 0, made.stderr
    yield dsn
    postgres.drop_database(name)


@pytest.fixture
def transform_folder(tmp_path: Path) -> Path:
    """A folder for PYTHONPATH with the transform's module, and no other module of the checkout."""
    source = Path(transforms.__file__)
    place = tmp_path / "code" / source.relative_to(ROOT)
    place.parent.mkdir(parents=True)
    shutil.copy(source, place)
    return tmp_path / "code"


@pytest.mark.guarantee(94)
@pytest.mark.faults
@pytest.mark.timeout(1_800)
def test_schema_then_publisher_then_job_are_upgraded_while_the_others_run(
    old_database: str,
    before: Installed,
    now: Installed,
    kafka: KafkaServer,
    topic_prefix: str,
    transform_folder: Path,
    tmp_path: Path,
) -> None:
    has_migration = current(old_database) != HEAD
    # The release before judges silence by older rules: none closes a session here.
    options: Options = {"session": {"timeout_s": 600}}
    with Pipeline(old_database, kafka.bootstrap_servers, topic_prefix, tmp_path, options=options) as pipeline:
        variables = pipeline.variables | {"PYTHONPATH": str(transform_folder)}

        def run(installed: Installed, command: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
            return installed.run(command, *arguments, folder=tmp_path, variables=variables)

        def service(installed: Installed, module: str) -> Service:
            log = tmp_path / f"{module}-{installed.version}.log"
            return Service(module, variables, log, installed.python)

        old_job, old_publisher = service(before, "spark_job"), service(before, "publisher")
        pipeline.job, pipeline.publisher = service(now, "spark_job"), service(now, "spark_outbox.publisher")
        try:
            pipeline.hold_open(6)
            with pipeline.load(7, sessions_per_second=5):
                old_publisher.start()
                old_job.start()
                see_progress(pipeline, old_job, old_publisher)

                migrated = run(now, "outbox-migrate", "up")
                assert migrated.returncode == 0, migrated.stderr
                assert current(old_database) == HEAD
                see_progress(pipeline, old_job, old_publisher)
                if has_migration:
                    refused = run(before, "publisher", "run")
                    assert refused.returncode == 3, refused.stderr

                pipeline.publisher.start()
                assert old_publisher.terminate() == 0, old_publisher.tail()
                see_progress(pipeline, old_job, pipeline.publisher)

                stopped = run(now, "spark-job", "stop")
                assert stopped.returncode == 0, stopped.stderr
                assert old_job.wait() == 0, old_job.tail()
                pipeline.job.start()
                see_progress(pipeline, pipeline.job, pipeline.publisher)
            pipeline.release()
            expected = pipeline.expectation()
            pipeline.complete(expected)
            audit = run(now, "publisher", "audit", "--kafka")
            assert audit.returncode == 0, audit.stdout
            pipeline.stop()
            pipeline.assert_exactly_once(expected)
            # The release before judges by older rules.
            assert pipeline.restored() == ["fresh", "new_generation"]
            assert pipeline.generations() == [(1, "first", 0), (2, "changed_assembly", 0)]
        except BaseException:
            print(
                old_job.tail(), old_publisher.tail(), pipeline.job.tail(), pipeline.publisher.tail(), sep="\n"
            )
            raise
        finally:
            for each in (old_job, old_publisher, pipeline.job, pipeline.publisher):
                each.destroy()


def see_progress(pipeline: Pipeline, job: Service, publisher: Service) -> None:
    """Wait until the job has committed three more batches with outputs, and the publisher has delivered them."""
    third_batch = "SELECT batch_id FROM outbox.batch WHERE output_events > 0 AND batch_id > %s ORDER BY batch_id OFFSET 2 LIMIT 1"
    newest = pipeline.batches()
    pipeline.wait_until(
        lambda: pipeline.ask(third_batch, newest), "three more batches", alive=(job, publisher)
    )
    ((third,),) = pipeline.ask(third_batch, newest)
    pipeline.wait_until(
        lambda: pipeline.ask("SELECT min(cursor_batch) >= %s FROM outbox.lane", third)[0][0],
        "the delivery of these batches",
        alive=(job, publisher),
    )
