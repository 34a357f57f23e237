"""Replays to a side topic beside the live delivery, killed and gone on with; each event of the range once."""

import signal
import subprocess
from collections import Counter
from contextlib import suppress
from typing import Any

from devstack.topics import create_topics
from tests.soak.stand import AWAY, PREFIX, Stand
from tests.support.pipeline import verdict
from tests.support.pipeline.expectation import Expectation
from tests.support.reading import end_offsets
from tests.support.waiting import LONG_DEADLINE_S, wait_until
from tests.support.watching import Watcher


class SideReplay:
    """At most one a chapter."""

    def __init__(self, stand: Stand) -> None:
        self._stand = stand
        self._topic: str | None = None
        self._range = (0, 0)
        self._number = 0

    def start(self, after_batch: int, kill_after_s: float) -> str:
        """Begin one over what every lane has delivered of this chapter, let it send, and kill it; return what happened.

        `judge` lets it end. It begins only where something was delivered since the chapter began.
        """
        pipeline = self._stand.pipeline
        self._number += 1
        topic = f"{PREFIX}replay-{self._number}"
        create_topics(pipeline.bootstrap, {topic: (2, {})})
        with self._stand.command(
            "replay", "start", "--from-batch", str(after_batch + 1), "--to-topic", topic, "--rate", "500", "--yes", "--json",
        ) as process:  # fmt: skip
            try:
                wait_until(
                    lambda: process.poll() is not None or self._made(topic),
                    "a replay, or its explanation",
                    LONG_DEADLINE_S,
                )
                with suppress(subprocess.TimeoutExpired):
                    process.wait(kill_after_s)
            finally:
                process.kill()
            output, explanation = process.communicate()
        made = self._made(topic)
        if not made:
            assert process.returncode == 0, (
                f"publisher replay start: exit code {process.returncode}\n{output}{explanation}"
            )
            self._delete(topic)
            self._stand.happened["`publisher replay`: nothing was delivered yet"] += 1
            return "nothing to replay yet"
        ((replay_id, *batches),) = made
        self._topic, self._range = topic, (batches[0], batches[1])
        assert process.returncode in (-signal.SIGKILL, 0, *AWAY), (
            f"replay {replay_id}: exit code {process.returncode}\n{output}{explanation}"
        )
        ended = "SIGKILL" if process.returncode == -signal.SIGKILL else f"exit code {process.returncode}"
        self._stand.happened[f"`publisher replay` to a side topic: {ended}"] += 1
        return f"replay {replay_id} of batches {batches[0]} to {batches[1]}: {ended}"

    def _made(self, topic: str) -> list[Any]:
        return self._stand.pipeline.ask(
            "SELECT replay_id, from_batch, to_batch FROM outbox.replay WHERE target_topic = %s", topic
        )

    def _delete(self, topic: str) -> None:
        for answer in self._stand.pipeline.admin.delete_topics([topic]).values():
            answer.result()

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
        with Watcher(pipeline.bootstrap, topic) as watcher:
            ends = end_offsets(pipeline.bootstrap, [topic], committed=False)
            pipeline.wait_until(lambda: watcher.has_read_to(ends), "reading the replay's topic")
            verdict.assert_same(
                Counter((event.outbox_id, event.key, event.value) for event in events),
                Counter((seen.outbox_id, seen.key, seen.value) for seen in watcher.seen),
                "replayed events",
            )
        self._delete(topic)
        self._topic = None
        return len(events)
