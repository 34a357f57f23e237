"""Sessions without a start and an end event come out once, and in parts, though the job is killed and has lost what was open."""

from pathlib import Path

import pytest

from devstack.kafka import KafkaServer
from tests.support.pipeline.feed import rounds, write
from tests.support.pipeline.options import Options
from tests.support.pipeline.pipeline import Pipeline

ONLY_SILENCE: Options = {
    "session": {
        "start": "",
        "entry": "*",
        "end": "",
        "on_timeout": "emit",
        "timeout_s": 1,
        "grace_s": 0.5,
        "max_events": 8,
    },
    "job": {"max_events_per_batch": 300},
}


@pytest.mark.guarantee(10, 11, 14, 21)
def test_sessions_that_only_silence_ends_come_out_once_after_a_kill(
    database: str, kafka: KafkaServer, topic_prefix: str, tmp_path: Path
) -> None:
    # All paths have spaces here: those of the cache and Spark's log, and those of temporary files.
    folder = tmp_path / "a folder"
    folder.mkdir()
    with Pipeline(database, kafka.bootstrap_servers, topic_prefix, folder, options=ONLY_SILENCE) as pipeline:
        temporary = pipeline.scratch / "its files"
        temporary.mkdir()
        pipeline.publisher.start()
        # Of event time 18 s: a key's sessions end by its next one, or by other keys' records.
        write(pipeline.bootstrap, pipeline.input, rounds(91, 60, 10, number=3))
        pipeline.start_and_see("fresh", TMPDIR=str(temporary))
        pipeline.more_batches(2)
        pipeline.crash()
        pipeline.lose_cache()
        pipeline.job.start(TMPDIR=str(temporary))
        expected = pipeline.finish()
        assert expected.sessions > 200, "without parts there are 166"
        assert {letter.reason for letter in expected.letters} <= {"malformed", "transform_failed"}
