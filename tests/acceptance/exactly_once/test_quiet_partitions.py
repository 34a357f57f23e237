"""Sessions of partitions that fall quiet end by clock records, once, though the job is killed and has lost what was open."""

import json
import signal
from pathlib import Path

import pytest

from devstack.kafka import KafkaServer
from tests.support.pipeline.feed import rounds, write
from tests.support.pipeline.options import Options
from tests.support.pipeline.pipeline import Pipeline

BY_CLOCK: Options = {
    "session": {"on_timeout": "emit", "timeout_s": 2, "grace_s": 0.5, "clock_records": True},
    "job": {"max_events_per_batch": 300},
}


@pytest.mark.guarantee(3, 11, 21, 40)
def test_silence_in_a_partition_that_falls_quiet_ends_its_sessions_once(
    database: str, kafka: KafkaServer, topic_prefix: str, tmp_path: Path
) -> None:
    with Pipeline(database, kafka.bootstrap_servers, topic_prefix, tmp_path, options=BY_CLOCK) as pipeline:
        pipeline.publisher.start()
        write(pipeline.bootstrap, pipeline.input, rounds(47, 60, 30, number=1))
        pipeline.start_and_see("fresh")
        before = pipeline.expectation()
        pipeline.wait_for_input(before)
        assert pipeline.status()["open"]["open_sessions"] > 0, "nothing shows the silence of the last ones"

        # One clock record in each partition alone shows nothing: its time is a producer's.
        found = pipeline.command_json("clock", "--quiet-for", "3s")
        assert [each["partition"] for each in found["written"]] == [0, 1, 2]
        with_one = pipeline.expectation()
        pipeline.wait_for_input(with_one)
        assert (with_one.records, with_one.sessions) == (before.records, before.sessions)
        assert pipeline.status()["open"]["open_sessions"] > 0

        # More come while the job is away and loses what was open: it reads all of that again.
        pipeline.crash()
        pipeline.lose_cache()
        with pipeline.begin(
            "clock", "--quiet-for", "2s", "--every", "500ms", OUTBOX_LOG__FORMAT="json"
        ) as clock:
            try:
                pipeline.start_and_see("position")
                pipeline.wait_until(
                    lambda: pipeline.status()["open"]["open_sessions"] == 0,
                    "the end of all sessions",
                    poll_s=1,
                )
            finally:
                clock.send_signal(signal.SIGTERM)
                _, said = clock.communicate(timeout=60)
        assert clock.returncode == 0, said
        written = [
            line for line in map(json.loads, said.splitlines()) if line["event"] == "clock_records_written"
        ]
        assert written
        assert {line["of"] for line in written} == {3}
        assert sum(pipeline.rebuilt()) > 0

        expected = pipeline.finish()
        assert expected.sessions > before.sessions
        assert {letter.reason for letter in expected.letters} <= {
            *("malformed", "no_start", "restarted", "transform_failed")
        }
        assert pipeline.restarts() == []
