"""An outbox in use, written by the version before schema 0005, is upgraded and continues: nothing is lost, repeated or reordered.

The version before is taken out of the repository's history and run as it was, with today's environment.
"""

import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from db.migrate import upgrade
from devstack.databases import PostgresServer
from devstack.kafka import KafkaServer
from service.errors import OutboxError
from tests.support.pipeline.expectation import Share
from tests.support.pipeline.options import Options, environment
from tests.support.pipeline.pipeline import Pipeline
from tests.support.processes.service import Service
from tests.support.releases import tree_of

BEFORE = "974e7f3fc1478c6f5be61f8695352242a1970870"
"""The last commit with schema 0004."""


@pytest.fixture
def old_version(tmp_path: Path) -> Path:
    """The folder of the version before."""
    return tree_of(BEFORE, tmp_path / "before")


@pytest.fixture
def old_database(postgres: PostgresServer, old_version: Path) -> Iterator[str]:
    """An empty outbox of the version before."""
    name = f"test_{uuid.uuid4().hex}"
    dsn = postgres.create_database(name)
    run_old(old_version, "-c", "import sys; from db.migrate import upgrade; upgrade(sys.argv[1])", dsn)
    yield dsn
    postgres.drop_database(name)


@pytest.mark.faults
@pytest.mark.timeout(2_400)
def test_an_outbox_of_the_version_before_continues_after_the_upgrade_and_its_savepoints_can_be_restored(
    old_database: str, old_version: Path, kafka: KafkaServer, topic_prefix: str, tmp_path: Path
) -> None:
    # The version before judged silence by other clocks, which this one takes over for what was open: none closes a session here.
    options: Options = {"session": {"timeout_s": 600}}
    with Pipeline(old_database, kafka.bootstrap_servers, topic_prefix, tmp_path, options=options) as pipeline:
        checkpoint = tmp_path / "checkpoint"
        old = old_environment(pipeline, old_version, checkpoint)
        job = Service("spark_job", old, tmp_path / "old-job.log")
        publisher = Service("publisher", old, tmp_path / "old-publisher.log")
        try:
            pipeline.hold_open(6)
            with pipeline.load(101, sessions_per_second=20):
                publisher.start()
                job.start()
                wait_for_batches(pipeline, job, 3)
                run_old(old_version, "-m", "spark_job", "savepoint", "create", "before", **old)
                wait_for_batches(pipeline, job, 3)
                with pytest.raises(OutboxError):
                    upgrade(old_database)

                # It dies, its checkpoint is lost, and it dies again while it catches up with itself.
                job.crash()
                pipeline.wait_until(pipeline.job_has_gone, "the end of the job's connections")
                shutil.rmtree(checkpoint)
                job.start(OUTBOX_JOB__MAX_EVENTS_PER_BATCH="30")
                wait_for_batches(pipeline, job, 1)
                job.crash()
                publisher.kill()
                pipeline.wait_until(pipeline.job_has_gone, "the end of the job's connections")
                ((done, end),) = pipeline.ask(
                    "SELECT done_offsets, end_offsets FROM outbox.batch ORDER BY batch_id DESC LIMIT 1"
                )
                assert done != end, "it has caught up: nothing is to be left out"

                upgrade(old_database)
                pipeline.publisher.start()
                pipeline.job.start()
                pipeline.more_batches(3)
            pipeline.release()
            pipeline.complete(pipeline.expectation())
            assert [reason for _, reason, _ in pipeline.generations()] == [
                "first",
                "checkpoint_lost",
                "upgrade",
                "changed_assembly",
            ]
            assert pipeline.restored()[-1] == "new_generation"
            assert sum(pipeline.rebuilt()) > 0
            pipeline.command("stop")
            assert pipeline.job.wait() == 0, pipeline.job.tail()

            (made,) = pipeline.command_json("savepoint", "list")
            assert made["state"] == "alive"
            ceiling = pipeline.ledger_end()
            pipeline.command("savepoint", "restore", "before", "--policy", "reissue", "--yes")
            pipeline.start_and_see("savepoint")
            (floor,) = made["end_offsets"].values()
            expected = pipeline.expectation(
                Share(ceiling=ceiling),
                Share(revision=1, floor={int(p): offset for p, offset in floor.items()}),
            )
            assert [output for output in expected.outputs if output.revision == 1]
            pipeline.complete(expected)
            pipeline.stop()
            pipeline.assert_exactly_once(expected)
        except BaseException:
            print(job.tail(), publisher.tail(), sep="\n")
            raise
        finally:
            job.destroy()
            publisher.destroy()


def old_environment(pipeline: Pipeline, old_version: Path, checkpoint: Path) -> dict[str, str]:
    """The settings of the version before, for the same pipeline."""
    options = {section: dict(values) for section, values in pipeline.options.items()}
    del options["job"]["cache"]
    options["job"] |= {
        "checkpoint": str(checkpoint),
        "buckets": 4,
        "shuffle_partitions": 2,
        "trigger_ms": 100,
    }
    return environment(options) | {"PYTHONPATH": str(old_version)}


def run_old(old_version: Path, *words: str, **environment: str) -> None:
    """Run Python with the version before."""
    subprocess.run(
        [sys.executable, *words],
        cwd=old_version,
        env=os.environ | environment | {"PYTHONPATH": str(old_version)},
        check=True,
        stdin=subprocess.DEVNULL,
    )


def wait_for_batches(pipeline: Pipeline, job: Service, number: int) -> None:
    """Wait until the job of before has committed some batches more."""
    enough = pipeline.batches() + number
    pipeline.wait_until(lambda: pipeline.batches() >= enough, f"{number} more batches", alive=(job,))
