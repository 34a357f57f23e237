"""The checkpoint is disposable: whatever happens to its directory, each output arrives exactly once."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.acceptance.pipeline import Pipeline


@pytest.mark.timeout(3_600)
def test_deleting_the_checkpoint_twice_in_a_row_under_load_loses_and_repeats_nothing(
    pipeline: Pipeline,
) -> None:
    """Keys are used again after the losses, many buckets have no data in a batch, and the input gets a partition meanwhile.

    The consumer group is moved and deleted on the way: nothing but a lag tool reads it.
    """
    job = pipeline.job
    pipeline.hold_open(12)
    pipeline.publisher.start()
    with pipeline.load(11, sessions_per_second=20):
        # Of the first generation; the later ones keep it, whatever the settings say.
        pipeline.start_and_see("fresh", OUTBOX_JOB__BUCKETS="16")
        pipeline.wait_until(lambda: pipeline.batches() >= 4, "four batches", alive=(job,))
        pipeline.crash()
        pipeline.lose_checkpoint()
        pipeline.group.move(to_end=True)

        # Sessions are open since the beginning: with small batches the second loss comes long before the first one's high water.
        pipeline.start_and_see("new_generation", OUTBOX_JOB__MAX_EVENTS_PER_BATCH="150")
        pipeline.crash()
        ((done, end, safe),) = pipeline.ask(
            "SELECT done_offsets, end_offsets, safe_offsets FROM outbox.batch ORDER BY batch_id DESC LIMIT 1"
        )
        assert done != end, "the new generation has caught up before the second loss"
        assert max(safe[pipeline.input_topic.id()].values()) < 12
        pipeline.lose_checkpoint()
        pipeline.group.delete()
        pipeline.input_topic.add_partitions(4)
        pipeline.feed(12, sessions=200)

        pipeline.start_and_see("new_generation")
        pipeline.group.move(to_end=True)
        batches = pipeline.batches()
        pipeline.wait_until(lambda: pipeline.batches() >= batches + 4, "more batches", alive=(job,))
    pipeline.release()
    expected = pipeline.expectation()
    pipeline.complete(expected)
    pipeline.stop()
    pipeline.assert_exactly_once(expected)
    assert pipeline.generations() == [(1, "first", 0), (2, "checkpoint_lost", 0), (3, "checkpoint_lost", 0)]
    assert pipeline.restored() == ["fresh", "new_generation", "new_generation"]
    assert pipeline.ask("SELECT DISTINCT (assembly->>'buckets')::int FROM outbox.generation") == [(16,)]
    assert {letter.partition for letter in expected.letters} == {0, 1, 2, 3}
    assert pipeline.ask(
        "SELECT min(touched) < 16 FROM (SELECT count(*) AS touched FROM outbox.bucket GROUP BY batch_id) b"
    ) == [(True,)]

    assert set(pipeline.group.lag().values()) == {0}
    pipeline.feed(13, sessions=50)
    assert sum(pipeline.group.lag().values()) == pipeline.expectation().records - expected.records > 0


Damage = Callable[[Path, Path], None]


def emptied(directory: Path, _copy: Path) -> None:
    for child in directory.iterdir():
        shutil.rmtree(child) if child.is_dir() else child.unlink()


def moved_aside(directory: Path, _copy: Path) -> None:
    directory.rename(f"{directory}.old")


def newest_plan_garbled(directory: Path, _copy: Path) -> None:
    garble(newest(directory / "offsets"))


def rolled_back(directory: Path, copy: Path) -> None:
    shutil.rmtree(directory)
    shutil.copytree(copy, directory)


def of_another_query(directory: Path, _copy: Path) -> None:
    """The first generation's directory, which is further than this one in its own count."""
    shutil.rmtree(directory)
    shutil.copytree(first_directory(directory.parent), directory)


def newest_commit_garbled(directory: Path, _copy: Path) -> None:
    garble(newest(directory / "commits"))


def metadata_deleted(directory: Path, _copy: Path) -> None:
    (directory / "metadata").unlink()


def state_deleted(directory: Path, _copy: Path) -> None:
    shutil.rmtree(directory / "state")


def state_truncated(directory: Path, _copy: Path) -> None:
    for file in (directory / "state").rglob("*.delta"):
        file.write_bytes(file.read_bytes()[:10])
        checksum_of(file).unlink(missing_ok=True)


@pytest.mark.faults
@pytest.mark.timeout(3_600)
def test_a_damaged_rolled_back_or_foreign_checkpoint_costs_a_new_generation_and_no_output(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    damages: list[tuple[Damage, str]] = [
        (moved_aside, "is empty or missing"),
        (of_another_query, "is another one"),
        (emptied, "is empty or missing"),
        (rolled_back, "is behind"),
        (newest_plan_garbled, "/offsets/"),
    ]
    job = pipeline.job
    pipeline.publisher.start()
    with pipeline.load(14, sessions_per_second=20):
        pipeline.start_and_see("fresh")
        pipeline.wait_until(lambda: pipeline.position().committed >= 8, "eight batches", alive=(job,))
        for number, (damage, text) in enumerate(damages):
            copy = tmp_path / damage.__name__
            if damage is rolled_back:
                copy_while_running(pipeline, copy)
            pipeline.crash()
            damage(pipeline.generation_directory(), copy)
            pipeline.start_and_see("new_generation")
            ((found,),) = pipeline.ask(
                "SELECT explanation FROM outbox.generation ORDER BY generation DESC LIMIT 1"
            )
            assert text in found, damage.__name__
            assert len(pipeline.generations()) == number + 2
            stored = pipeline.position().stored
            pipeline.wait_until(lambda s=stored: pipeline.position().committed > s, "a commit", alive=(job,))  # type: ignore[misc]
    expected = pipeline.expectation()
    pipeline.complete(expected)
    pipeline.stop()
    pipeline.assert_exactly_once(expected)
    assert {reason for _, reason, _ in pipeline.generations()[1:]} == {"checkpoint_lost"}


@pytest.mark.faults
@pytest.mark.timeout(3_600)
def test_what_only_spark_finds_damaged_costs_a_new_generation_in_the_same_process(pipeline: Pipeline) -> None:
    """The state and the commit log are Spark's own: it reads them only after the start has decided to go on."""
    damages = [state_deleted, state_truncated, newest_commit_garbled, metadata_deleted]
    job = pipeline.job
    pipeline.publisher.start()
    with pipeline.load(15, sessions_per_second=20):
        pipeline.start_and_see("fresh")
        for number, damage in enumerate(damages, 2):
            stored = pipeline.position().stored
            pipeline.wait_until(
                lambda s=stored: pipeline.position().committed >= s + 2,  # type: ignore[misc]
                "more batches",
                alive=(job,),
            )
            pipeline.crash()
            damage(pipeline.generation_directory(), Path())
            job.start()
            pipeline.wait_until(
                lambda n=number: (
                    pipeline.generations()[-1][:2] == (n, "checkpoint_lost")  # type: ignore[misc]
                    and pipeline.position().stored >= 0
                ),
                f"a new generation after: {damage.__name__}",
                alive=(job,),
            )
    expected = pipeline.expectation()
    pipeline.complete(expected)
    pipeline.stop()
    pipeline.assert_exactly_once(expected)


def copy_while_running(pipeline: Pipeline, copy: Path) -> None:
    """Copy the directory, and let the job go on until the copy is old."""
    pipeline.job.pause()
    shutil.copytree(pipeline.generation_directory(), copy)
    pipeline.job.resume()
    stored = pipeline.position().stored
    pipeline.wait_until(
        lambda: pipeline.position().stored >= stored + 3, "batches after the copy", alive=(pipeline.job,)
    )


def first_directory(folder: Path) -> Path:
    """The first generation's, wherever it was moved to."""
    (found,) = folder.glob("gen-1-*")
    return found


def newest(log: Path) -> Path:
    """The newest entry of one of Spark's logs."""
    return max((file for file in log.iterdir() if file.name.isdigit()), key=lambda file: int(file.name))


def garble(file: Path) -> None:
    """Write something else into a file. A checksum beside it stays: it must make no difference."""
    file.write_bytes(b"\x00garbled\xff")


def checksum_of(file: Path) -> Path:
    """Hadoop's checksum file beside a file."""
    return file.with_name(f".{file.name}.crc")
