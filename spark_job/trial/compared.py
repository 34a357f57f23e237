"""Compare the transform's outputs of a session with the outbox's. Pure."""

from dataclasses import dataclass
from itertools import zip_longest
from typing import Literal

from spark_job.testing.outputs import StoredOutput, difference
from spark_job.testing.running import SessionRun
from spark_job.trial.outbox import NotStored, StoredSession

OutputState = Literal["same", "altered", "missing", "new"]


@dataclass(frozen=True)
class Compared:
    """A session, with the transform's outputs and the outbox's."""

    run: SessionRun
    stored: StoredSession | NotStored | None
    """None: the outbox was not asked."""

    @property
    def state(self) -> str | None:
        """`same`, `altered`, `begins_earlier`, or why the outbox has nothing; None if the outbox was not asked."""
        if self.stored is None or isinstance(self.stored, NotStored):
            return None if self.stored is None else self.stored.state
        if self.stored.start < self.run.session.start.offset:
            return "begins_earlier"
        return "altered" if set(self.outputs) - {"same"} or self.run.failure is not None else "same"

    @property
    def outputs(self) -> list[OutputState]:
        """The state of each output, by index: `missing` if only the outbox has it, `new` if only the transform yields it now."""
        if not isinstance(self.stored, StoredSession):
            return []
        return [_state(was, now) for was, now in zip_longest(self.stored.outputs, self.run.outputs)]

    @property
    def difference(self) -> str:
        """A diff from the outbox's outputs to the current outputs; empty unless the session is `altered`."""
        if self.state != "altered" or not isinstance(self.stored, StoredSession):
            return ""
        return difference(self.stored.outputs, self.run.outputs, names=("outbox", "now"))


def _state(was: StoredOutput | None, now: StoredOutput | None) -> OutputState:
    if was is None:
        return "new"
    if now is None:
        return "missing"
    return "same" if was == now else "altered"
