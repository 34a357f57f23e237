"""One batch is committed while the next is computed: never two at a time, and nothing after one that was not committed."""

import threading
from collections.abc import Iterator

import pytest

from spark_job.sink.commit_thread import CommitThread


@pytest.fixture
def committing() -> Iterator[CommitThread]:
    made = CommitThread()
    yield made
    made.close()


def test_who_hands_over_does_not_wait_and_the_next_one_waits_for_it(committing: CommitThread) -> None:
    free, done = threading.Event(), []

    def first() -> bool:
        assert free.wait(30)
        done.append("first")
        return True

    def second() -> bool:
        done.append("second")
        return True

    assert committing.hand_over(first)
    assert not committing.settle(0)
    handing_over = threading.Thread(target=committing.hand_over, args=(second,))
    handing_over.start()
    assert done == []
    free.set()
    handing_over.join(30)
    assert committing.settle(30)
    assert done == ["first", "second"]


def test_after_a_batch_that_was_not_committed_nothing_more_is(committing: CommitThread) -> None:
    done: list[str] = []

    def more() -> bool:
        done.append("more")
        return True

    assert committing.hand_over(lambda: False)
    for _ in range(2):
        assert not committing.hand_over(more)
    assert committing.settle(30)
    assert done == []


def test_without_a_batch_there_is_nothing_to_wait_for(committing: CommitThread) -> None:
    assert committing.settle(0)
