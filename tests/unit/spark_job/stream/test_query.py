"""However a query ends, nothing is under way when its end is judged, and nothing of the run is kept after it."""

import contextlib
import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, ClassVar
from uuid import UUID

import pytest
from py4j.protocol import Py4JNetworkError

from service.errors import JobFailedError, OutboxError
from service.settings import JobSettings, KafkaSettings
from spark_job.input.offsets import Offsets
from spark_job.ledger import ownership
from spark_job.ledger.batch_size import BatchSize
from spark_job.ledger.requests import JobRequest
from spark_job.monitoring.health import JobHealth
from spark_job.sink.commit_thread import CommitThread
from spark_job.sink.computed_batch import BatchRange
from spark_job.stream import query
from spark_job.stream.endings import FailedPart, Interruption, QueryEnding
from spark_job.stream.query import QueryLoop

MOST = 16
PATIENCE_S = 30.0


class StandInQuery:
    """As Spark runs a query: a thread of its own calls back, batch after batch, until it is stopped or a callback raises."""

    def __init__(self, callback: Callable[[Any, int], None]) -> None:
        self._callback = callback
        self._ended = threading.Event()
        self.raised: BaseException | None = None
        self.lost: BaseException | None = None
        self.status = {"isTriggerActive": True, "message": "Processing new data"}
        self.lastProgress = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    @property
    def isActive(self) -> bool:  # noqa: N802 - Spark's name
        if self.lost is not None:
            raise self.lost
        return not self._ended.is_set()

    def _run(self) -> None:
        number = 0
        while not self._ended.is_set():
            try:
                self._callback(None, number)
            except BaseException as error:  # noqa: BLE001 - Spark keeps it
                self.raised = error
                self._ended.set()
            number += 1

    def stop(self) -> None:
        self._ended.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()

    def awaitTermination(self) -> None:  # noqa: N802 - Spark's name
        """Say nothing: Spark repeats what the callback raised."""


class Writer:
    """As Spark's writer of a stream."""

    def __init__(self, started: list[StandInQuery]) -> None:
        self._started = started

    def foreachBatch(self, callback: Callable[[Any, int], None]) -> "Writer":  # noqa: N802 - Spark's name
        self._callback = callback
        return self

    def option(self, *_: str) -> "Writer":
        return self

    def trigger(self, **_: str) -> "Writer":
        return self

    def start(self) -> StandInQuery:
        self._started.append(StandInQuery(self._callback))
        return self._started[-1]


class Steps:
    """Batches that compute nothing: what is committed, and when a query is to grow, is the test's."""

    commit: ClassVar[Callable[[], None]]
    grows_after: ClassVar[int | None]
    computed: ClassVar[list[int]]
    fails_at: ClassVar[int | None]

    def __init__(self, run: Any, start: Offsets, commits: CommitThread, _health: JobHealth) -> None:
        self.run, self.read_to, self.before, self.columns = run, start, 0, None
        self.largest = 0
        self._commits = commits
        self._successes_to_grow: int | None = None

    def begin_query(self, successes_to_grow: int | None) -> None:
        self._successes_to_grow = successes_to_grow

    def compute(self, _frame: None, _planned: BatchRange, number: int, ending: QueryEnding) -> int:
        if number == self.fails_at:
            raise ValueError("the transform failed")

        def commit() -> bool:
            try:
                type(self).commit()
            except ValueError as error:
                ending.fail(FailedPart.COMMIT, error)
                return False
            return True

        if self._commits.hand_over(commit):
            self.computed.append(number)
            if self._successes_to_grow is not None and number + 1 == self.grows_after:
                ending.grow()
        return MOST  # behind, so that none waits


class Run:
    """A run of queries, in a thread of its own."""

    def __init__(self, patch: pytest.MonkeyPatch, max_events: int) -> None:
        self.queries: list[StandInQuery] = []
        self.sizes: list[int] = []
        self.released: list[int] = []
        self.stop, self.interruption = threading.Event(), Interruption()
        self.at_checkpoint_end: Callable[[], None] = lambda: None
        self.carry_out: Callable[[], None] = lambda: None
        """What the job does with the request that ended the run."""
        Steps.commit, Steps.grows_after, Steps.fails_at, Steps.computed = (
            staticmethod(lambda: None),
            None,
            None,
            [],
        )
        patch.setattr(query, "BatchSteps", Steps)
        patch.setattr(query, "read_records", self._read_records)
        patch.setattr(query, "load_added_jars", lambda _spark: None)
        patch.setattr(query, "release_leftovers", lambda _spark: self.released.append(len(self.queries)))
        patch.setattr(query, "offsets_json", lambda *_: "{}")
        patch.setattr(query, "_range", lambda *_: BatchRange(Offsets(), Offsets()))
        patch.setattr(ownership, "ask_disowned", lambda *_: None)
        settings = SimpleNamespace(
            job=JobSettings(max_events_per_batch=MOST),
            tracing=SimpleNamespace(propagate=False),
            kafka=KafkaSettings(),
            postgres=None,
        )
        generation = SimpleNamespace(assembly={})
        run: Any = SimpleNamespace(
            settings=settings,
            spark=None,
            folder=self,
            topics=SimpleNamespace(ids={}),
            reader=SimpleNamespace(expected=SimpleNamespace(generation=generation)),
            run_id=None,
        )
        self.loop = QueryLoop(
            run, Offsets(), BatchSize(max_events, MOST), self.stop, self.interruption, JobHealth()
        )
        self.result: JobRequest | BaseException | None = None
        self._thread = threading.Thread(target=self._run)

    def _read_records(self, *_: Any, max_events: int, **__: Any) -> Any:
        self.sizes.append(max_events)
        return SimpleNamespace(writeStream=Writer(self.queries))

    @contextmanager
    def checkpoint(self) -> Iterator[str]:
        yield "file:///unused"
        self.at_checkpoint_end()

    def _run(self) -> None:
        try:
            self.result = self.loop.run()
            self.carry_out()
        except OutboxError as error:
            self.result = error

    def start(self) -> None:
        self._thread.start()

    @property
    def has_ended(self) -> bool:
        return not self._thread.is_alive()

    def wait(self) -> JobRequest | BaseException | None:
        self._thread.join(PATIENCE_S)
        assert self.has_ended
        return self.result


@pytest.fixture
def new_run(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Run]]:
    runs: list[Run] = []

    def make(max_events: int = MOST) -> Run:
        runs.append(Run(monkeypatch, max_events))
        return runs[-1]

    yield make
    for run in runs:
        run.stop.set()
        with contextlib.suppress(RuntimeError):  # one that was never started
            run.wait()


def hold_commits() -> tuple[threading.Event, threading.Event, list[str]]:
    """Let commits wait: (one has begun, let them go, those that are done)."""
    begun, free, done = threading.Event(), threading.Event(), []

    def commit() -> None:
        begun.set()
        assert free.wait(PATIENCE_S)
        done.append("committed")

    Steps.commit = staticmethod(commit)
    return begun, free, done


def stop_by_signal(run: Run) -> None:
    run.stop.set()


def stop_by_command(run: Run) -> None:
    run.interruption.ask(JobRequest(1, UUID(int=1), "stop", {"savepoint": None}))


def stop_with_a_savepoint(run: Run) -> None:
    run.interruption.ask(JobRequest(1, UUID(int=1), "stop", {"savepoint": "monday"}))


def restore_a_savepoint(run: Run) -> None:
    run.interruption.ask(JobRequest(1, UUID(int=1), "restore", {"savepoint": "monday", "policy": "skip"}))


STOPS = [stop_by_signal, stop_by_command, stop_with_a_savepoint, restore_a_savepoint]


def test_a_query_grows_without_an_exception_and_the_next_one_takes_more(new_run: Callable[..., Run]) -> None:
    run = new_run(1)
    Steps.grows_after = 2
    run.start()
    while len(run.sizes) < 3:
        assert not run.has_ended
    run.stop.set()
    assert run.wait() is None
    assert run.sizes == [1, 4, 16]
    assert [each.raised for each in run.queries] == [None, None, None]
    assert run.released == [1, 2, 3]


@pytest.mark.parametrize("stop", STOPS)
@pytest.mark.parametrize("at_the_end", [False, True], ids=["while it ends", "when it has ended"])
def test_a_stop_that_meets_a_growing_query_waits_for_its_last_commit(
    new_run: Callable[..., Run],
    monkeypatch: pytest.MonkeyPatch,
    stop: Callable[[Run], None],
    at_the_end: bool,
) -> None:
    """The job then carries the request out, on the connection of the commits: a savepoint within a batch's transaction would be lost."""
    run = new_run(1)
    Steps.grows_after = 1
    _, free, done = hold_commits()
    seen: list[list[str]] = []
    commits = run.loop._commits
    settle = commits.settle

    def settling(timeout_s: float) -> bool:
        if not at_the_end and not free.is_set():
            stop(run)
        free.set()  # the commit ends when it is waited for, no sooner
        return settle(timeout_s)

    def at_checkpoint_end() -> None:
        seen.append(list(done))
        if at_the_end:
            stop(run)

    monkeypatch.setattr(commits, "settle", settling)
    run.at_checkpoint_end = at_checkpoint_end
    run.carry_out = lambda: seen.append(list(done))
    run.start()
    assert run.wait() is run.interruption.request
    assert (run.interruption.request is None) == (stop is stop_by_signal)
    assert seen == [["committed"]] * 2
    assert (Steps.computed, run.sizes) == ([0], [1])


@pytest.mark.parametrize("stop", STOPS)
def test_a_stop_lets_no_further_batch_begin_and_waits_for_the_last_commit(
    new_run: Callable[..., Run], stop: Callable[[Run], None]
) -> None:
    run = new_run()
    begun, free, done = hold_commits()
    run.start()
    assert begun.wait(PATIENCE_S)
    stop(run)
    assert not run.has_ended
    free.set()
    assert run.wait() is run.interruption.request
    assert len(done) == len(Steps.computed)
    assert run.queries[0].raised is None


def test_a_commit_that_fails_ends_the_query_and_is_what_is_told(new_run: Callable[..., Run]) -> None:
    run = new_run()

    def commit() -> None:
        raise ValueError("Postgres is away")

    Steps.commit = staticmethod(commit)
    run.start()
    failure = run.wait()
    assert isinstance(failure, OutboxError)
    assert "Postgres is away" in str(failure.__cause__)
    # The reason is kept and shown in more places than the log; this error's text might quote an event.
    assert "Postgres is away" not in str(failure)
    assert "ValueError at test_query.py, line " in str(failure)
    assert run.queries[0].raised is None


def test_a_batch_that_fails_ends_the_query_after_the_commit_beside_it(new_run: Callable[..., Run]) -> None:
    run = new_run()
    Steps.fails_at = 1
    begun, free, done = hold_commits()
    run.start()
    assert begun.wait(PATIENCE_S)
    free.set()
    failure = run.wait()
    assert isinstance(failure, OutboxError)
    assert "the transform failed" in str(failure.__cause__)
    assert done == ["committed"]
    assert isinstance(run.queries[0].raised, ValueError)


def test_a_jvm_that_is_gone_fails_the_run_unless_it_is_to_stop(new_run: Callable[..., Run]) -> None:
    for stopping in (False, True):
        run = new_run()
        begun, free, _ = hold_commits()
        run.start()
        assert begun.wait(PATIENCE_S)
        if stopping:
            run.stop.set()
        run.queries[0].lost = Py4JNetworkError("gone")
        free.set()
        assert (run.wait() is None) == stopping


def test_a_query_that_spark_ends_by_itself_is_a_failure(new_run: Callable[..., Run]) -> None:
    run = new_run()
    begun, free, _ = hold_commits()
    run.start()
    assert begun.wait(PATIENCE_S)
    free.set()
    run.queries[0].stop()
    failure = run.wait()
    assert isinstance(failure, JobFailedError)
    assert "by itself" in str(failure)


def test_what_spark_keeps_of_a_query_leads_to_nothing_once_it_has_ended(new_run: Callable[..., Run]) -> None:
    """pyspark keeps the callback, and what it raised, until the JVM collects its garbage."""
    run = new_run()
    Steps.fails_at = 0
    run.start()
    assert isinstance(run.wait(), OutboxError)
    kept = run.queries
    loop = weakref.ref(run.loop)
    steps = weakref.ref(run.loop._batches)
    run.result = None
    del run.loop
    gc.collect()
    assert kept[0]._callback is not None
    assert kept[0].raised is not None
    assert (loop(), steps()) == (None, None)
    assert run.released == [1]
