"""The commit of a batch runs beside the computation of the next one: one thread, one batch at a time, in order."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait


class CommitThread:
    """Runs one commit at a time in its own thread. Once one has failed, nothing more is begun."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="commit")
        self._newest: Future[None] | None = None

    @property
    def failure(self) -> BaseException | None:
        """What ended it, None while nothing has."""
        newest = self._newest
        return newest.exception() if newest is not None and newest.done() else None

    def hand_over(self, commit: Callable[[], None]) -> None:
        """Begin `commit` as soon as the one before has ended. Raises what that one raised."""
        if self._newest is not None:
            self._newest.result()
        self._newest = self._thread.submit(commit)

    def settle(self, timeout_s: float) -> bool:
        """Wait until nothing is under way; return whether it came to that."""
        return self._newest is None or bool(wait([self._newest], timeout_s).done)

    def close(self) -> None:
        """Let the thread end, after what is under way."""
        self._thread.shutdown(wait=False)
