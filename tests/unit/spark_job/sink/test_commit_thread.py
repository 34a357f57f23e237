"""One batch is committed while the next is computed: never two at a time, and nothing after a failure."""

import threading
from collections.abc import Iterator

import pytest

from spark_job.sink.commit_thread import CommitThread
from tests.support.waiting import wait_until


@pytest.fixture
def committing() -> Iterator[CommitThread]:
    made = CommitThread()
    yield made
    made.close()


def test_who_hands_over_does_not_wait_and_the_next_one_waits_for_it(committing: CommitThread) -> None:
    free, done = threading.Event(), []

    def first() -> None:
        assert free.wait(30)
        done.append("first")

    committing.hand_over(first)
    assert not committing.settle(0)
    second = threading.Thread(target=committing.hand_over, args=(lambda: done.append("second"),))
    second.start()
    assert done == []
    free.set()
    second.join(30)
    assert committing.settle(30)
    assert done == ["first", "second"]
    assert committing.failure is None


def test_after_a_failure_nothing_more_is_committed(committing: CommitThread) -> None:
    done: list[str] = []

    def fail() -> None:
        raise ValueError("Postgres is away")

    committing.hand_over(fail)
    wait_until(lambda: committing.failure is not None, "the failure", 30)
    for _ in range(2):
        with pytest.raises(ValueError, match="away"):
            committing.hand_over(lambda: done.append("more"))
    assert committing.settle(30)
    assert isinstance(committing.failure, ValueError)
    assert done == []


def test_without_a_batch_there_is_nothing_to_wait_for(committing: CommitThread) -> None:
    assert committing.settle(0)
    assert committing.failure is None
