"""Show a trial to people and to machines."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from rich.console import Console

from service.printable import bytes_json, printable, shown_bytes
from spark_job.sessions.result import DeadLetter
from spark_job.testing.outputs import StoredOutput
from spark_job.trial.compared import Compared, OutputState
from spark_job.trial.outbox import NotStored, StoredSession


@dataclass(frozen=True)
class Trial:
    """The records read, and the outputs of the transform."""

    sessions: Sequence[Compared]
    records: int
    read: str
    """What was read, for people."""
    limited_by: str | None = None
    """The limit that ended the reading before enough sessions were found."""
    not_compared: str | None = None
    """Why the outbox was not asked; None: it was."""
    letters: Sequence[DeadLetter] = ()
    """Records of a file that are no session. Empty for the newest records: a session's start may lie before them."""
    open: Sequence[str] = ()
    """Keys of a file's sessions that have not ended."""

    @property
    def failed(self) -> int:
        """Sessions that would become dead letters."""
        return sum(each.run.failure is not None for each in self.sessions)

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON-ready values."""
        return {
            "sessions": [session_json(each) for each in self.sessions],
            "failed": self.failed,
            "records_read": self.records,
            "limited_by": self.limited_by,
            "outbox": {"compared": self.not_compared is None, "because": self.not_compared},
            "letters": [
                {"record": each.first_offset, "reason": each.reason, "detail": each.detail}
                for each in self.letters
            ],
            "open": list(self.open),
        }

    def print(self, out: Console) -> None:
        """Print it for people."""
        for line in self._lines():
            # Each line alone, because a line end within it is foreign text, too.
            out.print(printable(line))

    def _lines(self) -> Iterator[str]:
        for each in self.sessions:
            yield from session_lines(each)
        for letter in self.letters:
            yield f"record {letter.first_offset} becomes a dead letter {letter.reason}: {letter.detail}"
        if self.open:
            yield f"not ended: {', '.join(self.open[:_SHOWN])}{' …' if len(self.open) > _SHOWN else ''}"
        states = Counter(each.state for each in self.sessions if each.state is not None)
        found = [f"{STATES[state]} {count}" for state, count in sorted(states.items())]
        failed = [f"failed {self.failed}"] if self.failed else []
        yield f"sessions {len(self.sessions)}{''.join(f', {each}' for each in failed + found)}; read: {self.read}"
        if self.limited_by is not None:
            yield f"No older record was read: {self.limited_by} was reached"
        if self.not_compared is not None:
            yield f"Not compared with the outbox: {self.not_compared}"


_SHOWN = 10
STATES = {
    "same": "same as in the outbox",
    "altered": "altered",
    "begins_earlier": "not compared, begun before the first record read",
    "not_read": "not read by the job yet",
    "dead_letter": "dead letters",
    "erased": "erased",
    "absent": "not in the outbox",
}


def session_lines(of: Compared) -> Iterator[str]:
    """Yield a session for people: a line, and its outputs or how they differ from the outbox."""
    session = of.run.session
    verdict = _verdict(of)
    of_part = f" of part {session.part}" if session.part > 1 else ""
    yield (
        f"{session.key}  {session.end.topic}/{session.end.partition} offsets {session.start.offset} to {session.end.offset}, "
        f"{len(session.events)} events{of_part}, ended {session.ended_at:%F %T} UTC{f': {verdict}' if verdict else ''}"
    )
    if of.run.failure is not None:
        yield "  becomes a dead letter transform_failed:"
        yield from (f"  {line}" for line in of.run.failure.rstrip().split("\n"))
    elif of.difference:
        yield from (f"  {line}" for line in of.difference.split("\n"))
    else:
        yield from (f"  {_one_line(output)}" for output in of.run.outputs)


def _verdict(of: Compared) -> str:
    if of.stored is None:
        return ""
    if isinstance(of.stored, NotStored):
        return f"not in the outbox, {of.stored.why}"
    where = f"batch {of.stored.batch_id}" + (f", revision {of.stored.revision}" if of.stored.revision else "")
    if of.state == "begins_earlier":
        return f"not compared, {where} has it from offset {of.stored.start} on, which was not read"
    if of.state == "same":
        return f"as in {where}"
    counts = Counter(of.outputs)
    states: tuple[OutputState, ...] = get_args(OutputState)
    return f"differs from {where}: outputs {', '.join(f'{counts[state]} {state}' for state in states if counts[state])}"


def _one_line(output: StoredOutput) -> str:
    parts = [output.topic, f"key {shown_bytes(output.key)}"]
    parts += [f"{name}={shown_bytes(value)}" for name, value in output.headers]
    parts += [] if output.partition is None else [f"partition {output.partition}"]
    parts += [] if output.timestamp is None else [f"timestamp {output.timestamp.isoformat()}"]
    return "  ".join([*parts, shown_bytes(output.value)])


def session_json(of: Compared) -> dict[str, Any]:
    """Return a session as JSON-ready values."""
    session = of.run.session
    found: dict[str, Any] = {
        "session_key": session.key,
        "topic": session.end.topic,
        "partition": session.end.partition,
        "start_offset": session.start.offset,
        "end_offset": session.end.offset,
        "events": len(session.events),
        "part": session.part,
        "ended_by": session.ended_by,
        "started_at": session.started_at.isoformat(),
        "ended_at": session.ended_at.isoformat(),
        "outputs": [_output_json(output) for output in of.run.outputs],
        "failure": of.run.failure,
    }
    if of.stored is None:
        return found | {"outbox": None}
    outbox: dict[str, Any] = {"state": of.state}
    if isinstance(of.stored, StoredSession):
        outbox |= {
            "batch": of.stored.batch_id,
            "revision": of.stored.revision,
            "start_offset": of.stored.start,
            "outputs": of.outputs,
            "stored": [_output_json(output) for output in of.stored.outputs],
        }
    else:
        outbox |= {"because": of.stored.why}
    return found | {"outbox": outbox}


def _output_json(output: StoredOutput) -> dict[str, Any]:
    return {
        "topic": output.topic,
        "key": bytes_json(output.key),
        "value": None if output.value is None else bytes_json(output.value),
        "headers": [[name, None if value is None else bytes_json(value)] for name, value in output.headers],
        "partition": output.partition,
        "timestamp": None if output.timestamp is None else output.timestamp.isoformat(),
    }
