"""A checkpoint that only Spark itself finds unusable, while it runs, costs a re-read and nothing else, and needs nobody."""

import shutil
from pathlib import Path

import pytest

from tests.acceptance.pipeline import Pipeline

GARBAGE = b"\x07garbage"


def newest(folder: Path) -> Path:
    """The log's newest entry."""
    return max(
        (entry for entry in folder.iterdir() if entry.name.isdigit()), key=lambda entry: int(entry.name)
    )


def garble(*files: Path) -> None:
    """Overwrite the files, and remove Hadoop's checksums of them."""
    assert files
    for file in files:
        file.write_bytes(GARBAGE)
        (file.parent / f".{file.name}.crc").unlink(missing_ok=True)


def delete_state(checkpoint: Path) -> None:
    shutil.rmtree(checkpoint / "state")


def delete_state_of_a_partition(checkpoint: Path) -> None:
    shutil.rmtree(checkpoint / "state" / "0" / "0")


def garble_state(checkpoint: Path) -> None:
    partition = checkpoint / "state" / "0" / "1"
    garble(*partition.glob("*.delta"), *partition.glob("*.snapshot"))


def garble_state_schema(checkpoint: Path) -> None:
    found = (checkpoint / "state").rglob("_metadata/schema*")
    garble(*(file for file in found if file.is_file()))


def garble_newest_commit(checkpoint: Path) -> None:
    garble(newest(checkpoint / "commits"))


def delete_metadata(checkpoint: Path) -> None:
    (checkpoint / "metadata").unlink()
    (checkpoint / ".metadata.crc").unlink(missing_ok=True)


def garble_metadata(checkpoint: Path) -> None:
    garble(checkpoint / "metadata")


DAMAGES = (
    delete_state,
    delete_state_of_a_partition,
    garble_state,
    garble_state_schema,
    garble_newest_commit,
    delete_metadata,
    garble_metadata,
)


@pytest.mark.faults
@pytest.mark.timeout(2_400)
def test_a_checkpoint_that_spark_cannot_use_is_replaced_in_the_same_process(pipeline: Pipeline) -> None:
    job = pipeline.job
    pipeline.publisher.start()
    with pipeline.load(31, sessions_per_second=15):
        job.start(OUTBOX_RESTART__DELAY_S="0.1")
        for number, damage in enumerate(DAMAGES, 1):
            pipeline.wait_until(
                lambda: pipeline.position().committed >= 2, "three batches", timeout_s=400, alive=(job,)
            )
            job.crash()
            damage(pipeline.generation_directory())

            job.start(OUTBOX_RESTART__DELAY_S="0.1")
            pipeline.wait_until(
                lambda number=number: len(pipeline.generations()) > number,  # type: ignore[misc]
                f"a new generation after {damage.__name__}",
                timeout_s=400,
                alive=(job,),
            )
            assert job.log().count("because='CheckpointUnusableError: ") == number, damage.__name__
        batches = pipeline.batches()
        pipeline.wait_until(
            lambda: pipeline.batches() >= batches + 2, "more batches", timeout_s=400, alive=(job,)
        )
    expected = pipeline.expectation()
    pipeline.complete(expected)
    pipeline.stop()
    pipeline.assert_exactly_once(expected)
    assert pipeline.generations() == [
        (1, "first", 0),
        *((number, "checkpoint_lost", 0) for number in range(2, len(DAMAGES) + 2)),
    ]
