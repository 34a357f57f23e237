"""The commit of a batch runs beside the computation of the next one: one thread, one batch at a time, in order."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait


class CommitThread:
    """Runs one commit at a time in its own thread. After a batch that was not committed, no other commit begins."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="commit")
        self._newest: Future[bool] | None = None

    def hand_over(self, commit: Callable[[], bool]) -> bool:
        """Wait for the previous commit, then begin `commit`. If the previous commit returned False, begin nothing and return False.

        `commit` returns whether it committed, and handles its failures itself.
        """
        if self._newest is not None and not self._newest.result():
            return False
        self._newest = self._thread.submit(commit)
        return True

    def settle(self, timeout_s: float) -> bool:
        """Wait until no commit is under way; return False after the timeout."""
        return self._newest is None or bool(wait([self._newest], timeout_s).done)

    def close(self) -> None:
        """Let the thread end, after the commit that is under way."""
        self._thread.shutdown(wait=False)
