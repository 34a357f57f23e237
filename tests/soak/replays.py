"""Replays to a side topic beside the live delivery, killed and gone on with; each event of the range once."""

import subprocess
from collections import Counter
from contextlib import suppress

from confluent_kafka import KafkaException

from devstack.topics import create_topics
from tests.acceptance import verdict
from tests.acceptance.expectation import Expectation
from tests.acceptance.watcher import Watcher
from tests.soak.stand import PREFIX, Stand


class SideReplay:
    """At most one a chapter."""

    def __init__(self, stand: Stand) -> None:
        self._stand = stand
        self._topic: str | None = None
        self._range = (0, 0)
        self._number = 0

    def start(self, after_batch: int, kill_after_s: float) -> str:
        """Begin one over this chapter's batches so far, and kill it; return what happened. `judge` lets it end."""
        pipeline = self._stand.pipeline
        rows = pipeline.ask(
            "SELECT min(cursor_batch) - 1 FROM outbox.lane WHERE epoch = (SELECT max(epoch) FROM outbox.lane_epoch)"
        )
        last = rows[0][0] or 0
        if self._topic is not None or last <= after_batch:
            return "nothing to replay yet"
        self._number += 1
        topic = f"{PREFIX}replay-{self._number}"
        try:
            create_topics(pipeline.bootstrap, {topic: (2, {})})
        except KafkaException:
            return "Kafka away"
        with self._stand.command(
            "replay", "start", "--from-batch", str(after_batch + 1), "--to-batch", str(last), "--to-topic", topic,
            "--rate", "500", "--yes", "--json",
        ) as process:  # fmt: skip
            with suppress(subprocess.TimeoutExpired):
                process.wait(kill_after_s)
            process.kill()
        found = pipeline.ask(
            "SELECT replay_id, from_batch, to_batch FROM outbox.replay WHERE target_topic = %s", topic
        )
        if not found:
            return "killed before it was made"
        self._topic, self._range = topic, (found[0][1], found[0][2])
        return f"replay {found[0][0]} of batches {self._range[0]} to {self._range[1]} killed"

    def judge(self, expected: Expectation) -> int:
        """Let it end, and compare its topic with what was sent; return its events, 0 where there was none."""
        if self._topic is None:
            return 0
        pipeline, topic = self._stand.pipeline, self._topic
        ((replay_id, state),) = pipeline.ask(
            "SELECT replay_id, state FROM outbox.replay WHERE target_topic = %s", topic
        )
        if state != "done":
            output = self._stand.run(
                "replay", "go-on", str(replay_id), "--rate", "0", "--json", may_fail=False
            )
            assert output is not None
        ids = pipeline.ask(
            "SELECT outbox_id FROM outbox.event WHERE batch_id BETWEEN %s AND %s", *self._range
        )
        wanted = {outbox_id for (outbox_id,) in ids}
        events = [output for output in expected.outputs if output.outbox_id in wanted]
        with Watcher(pipeline.bootstrap, [topic]) as watcher:
            ends = verdict.ends(pipeline.bootstrap, [topic], committed=False)
            pipeline.wait_until(lambda: watcher.has_read_to(ends), "reading the replay's topic")
            verdict.assert_same(
                Counter((event.outbox_id, event.key, event.value) for event in events),
                Counter((seen.outbox_id, seen.key, seen.value) for seen in watcher.seen),
                "replayed events",
            )
        for answer in pipeline.admin.delete_topics([topic]).values():
            answer.result()
        self._topic = None
        return len(events)
