"""The soak's verdict, chapter by chapter, so that memory and disk stay bounded: each ends with everything delivered and judged."""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count

from confluent_kafka import TopicPartition

from service.settings import SessionSettings
from tests.soak.replays import SideReplay
from tests.soak.stand import Stand
from tests.support.pipeline import verdict
from tests.support.pipeline.expectation import Expectation, expect, read_topic
from tests.support.reading import end_offsets, read_to_end

DRAIN_S = 1_200.0
_CLOSERS = 200

# Every lane of the newest epoch at the newest batch; the earlier epochs are through then.
_DRAINED = """
    SELECT count(*) = (SELECT lanes FROM outbox.lane_epoch ORDER BY epoch DESC LIMIT 1)
    FROM outbox.lane
    WHERE epoch = (SELECT max(epoch) FROM outbox.lane_epoch) AND cursor_key IS NULL
        AND cursor_batch = (SELECT max(batch_id) FROM outbox.batch)
"""


@dataclass
class Totals:
    """Of all chapters so far."""

    chapters: int = 0
    records: int = 0
    sessions: int = 0
    outputs: int = 0
    letters: Counter[str] = field(default_factory=Counter)
    duplicates: int = 0
    aborted: int = 0
    replayed: int = 0
    drain_s: float = 0.0


class Chapters:
    """Judges one after the other."""

    def __init__(self, stand: Stand) -> None:
        self._stand = stand
        self._cut: dict[int, int] = {}
        self._output_ends: dict[tuple[str, int], int] = {}
        self._after_batch = 0
        self.replay = SideReplay(stand)
        self.totals = Totals()

    def start_replay(self, kill_after_s: float) -> str:
        """Begin a replay of this chapter's batches to a side topic, and kill it; `end` lets it end and judges it."""
        return self.replay.start(self._after_batch, kill_after_s)

    def end(self) -> Expectation:
        """Let everything drain, judge it, and forget it. No faults meanwhile, nothing else writes input. Fails where anything differs."""
        began = time.monotonic()
        deadline = began + DRAIN_S
        pipeline = self._stand.pipeline
        # Sessions whose end never comes are closed by later records, so that the next chapter depends on nothing before it.
        pipeline.hold_open(_CLOSERS)
        pipeline.release()
        expected = self._expectation()
        self._wait_for_the_input(expected, deadline)
        self._wait_for(lambda: pipeline.ask(_DRAINED)[0][0], "the delivery of all batches", deadline)
        ((open_sessions,),) = pipeline.ask(
            "SELECT coalesce(sum((p.value ->> 'sessions')::bigint), 0)"
            " FROM (SELECT open_state FROM outbox.batch WHERE kind = 'stream' ORDER BY batch_id DESC LIMIT 1) b,"
            " jsonb_each(b.open_state) t, jsonb_each(t.value) p"
        )
        assert open_sessions == 0, (
            f"{open_sessions} sessions are open although later records must have closed them"
        )
        self._judge(expected)
        self.totals.drain_s += time.monotonic() - began
        self._forget(expected)
        return expected

    def _expectation(self) -> Expectation:
        pipeline = self._stand.pipeline
        records = [
            record
            for record in read_topic(pipeline.bootstrap, pipeline.input)
            if record.offset >= self._cut.get(record.source, 0)
        ]
        session = SessionSettings(**pipeline.options["session"])
        return expect(records, pipeline.input, pipeline.input_topic.id(), session)

    def _wait_for_the_input(self, expected: Expectation, deadline: float) -> None:
        pipeline, topic_id = self._stand.pipeline, self._stand.pipeline.input_topic.id()

        def done() -> bool:
            rows = pipeline.ask(
                "SELECT end_offsets FROM outbox.batch WHERE kind = 'stream' ORDER BY batch_id DESC LIMIT 1"
            )
            found = rows[0][0].get(topic_id, {}) if rows else {}
            return all(found.get(str(place), 0) >= end for place, end in expected.ends.items())

        self._wait_for(done, "the end of the input", deadline)

    def _wait_for(self, condition: Callable[[], object], what: str, deadline: float) -> None:
        for turn in count():
            if condition():
                return
            self._stand.supervise()
            if turn % 60 == 59:
                print(f"    waiting for {what}: {self._stand.pipeline.ledger_end()}", flush=True)
            assert time.monotonic() < deadline, f"not within {DRAIN_S:g} s: {what}\n" + "\n".join(
                service.tail() for service in self._stand.services
            )
            time.sleep(0.5)

    def _judge(self, expected: Expectation) -> None:
        pipeline = self._stand.pipeline
        verdict.assert_no_open_transaction(pipeline.bootstrap, [*pipeline.outputs, pipeline.progress_topic()])
        ends = end_offsets(pipeline.bootstrap, pipeline.outputs, committed=True)
        pipeline.wait_until(
            lambda: pipeline.watcher.has_read_to(ends), "reading the output topics to their ends"
        )
        verdict.assert_delivered(expected, pipeline.watcher.seen)
        verdict.assert_outbox(pipeline.dsn, expected, self._after_batch)
        verdict.assert_ledger_agrees(pipeline.dsn, self._after_batch)
        verdict.assert_deliveries_chain(pipeline.dsn)
        totals = self.totals
        totals.replayed += self.replay.judge(expected)
        totals.aborted += self._aborted(len(expected.outputs))
        totals.chapters += 1
        totals.records += expected.records
        totals.sessions += expected.sessions
        totals.outputs += len(expected.outputs)
        totals.letters += Counter(letter.reason for letter in expected.letters)
        totals.duplicates += expected.duplicates
        self._output_ends = ends

    def _aborted(self, committed: int) -> int:
        """Output records of this chapter that only a read_uncommitted consumer sees."""
        pipeline = self._stand.pipeline
        records = read_to_end(
            pipeline.bootstrap, *pipeline.outputs, isolation="read_uncommitted", starts=self._output_ends
        )
        return sum(1 for _ in records) - committed

    def _forget(self, expected: Expectation) -> None:
        """Delete what was judged, in Kafka too; the cut is remembered, because a killed broker may forget the deletion."""
        pipeline = self._stand.pipeline
        pipeline.watcher.seen.clear()
        self._cut |= expected.ends
        self._after_batch = pipeline.batches()
        places = [TopicPartition(pipeline.input, number, end) for number, end in expected.ends.items()]
        places += [TopicPartition(*place, end) for place, end in self._output_ends.items()]
        for answer in pipeline.admin.delete_records(places).values():
            answer.result()
