"""The W3C trace context of a session: the headers of its end event, for its outputs (`[tracing] propagate`).

The end event that closes a session is among the records that the assembler was just given, so it is looked up there. Neither the assembler
nor the open sessions know of headers, and a rebuild needs none. A session without an end event (after a timeout, for example) has no
context. The context is passed on unchanged: a span of the job's own would need the same id in every attempt.
"""

import re
from collections.abc import Collection, Sequence

import numpy as np
import pyarrow as pa

from spark_job.input.columns import TRACE_CONTEXT
from spark_job.sessions.result import ClosedSession

TraceContext = Sequence[tuple[str, str]]
"""(header, value): `traceparent`, perhaps `tracestate`. Empty if there is none."""

NO_CONTEXT: TraceContext = ()

_PARENT, _STATE = TRACE_CONTEXT
# https://www.w3.org/TR/trace-context/: version, trace id, parent id, flags. Version 00 ends with them; later ones may continue.
_TRACEPARENT = re.compile(
    rb"(?:00(?=.{53}\Z)|(?!00|ff)[0-9a-f]{2})-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?:-[!-~]{0,200})?"
)
_STATE_MEMBER = re.compile(rb"[a-z0-9][a-z0-9_*/@-]{0,255}=[ -+\--<>-~]{0,255}[!-+\--<>-~]")
_STATE_BYTES = 512
"""The shortest limit that the specification allows: longer states need not be passed on."""
_STATE_MEMBERS = 32


def trace_contexts(new: pa.Table, closed: Sequence[ClosedSession]) -> list[TraceContext]:
    """Return each session's context. `new`: the records that closed them, in offset order; without the columns, every context is empty."""
    if not closed or _PARENT not in new.column_names:
        return [NO_CONTEXT] * len(closed)
    ends = np.array([session.end_offset for session in closed])
    is_ended = np.array([session.ended_by == "end" for session in closed])
    rows = pa.array(np.searchsorted(new.column("offset").to_numpy(), ends), mask=~is_ended)
    return list(map(context_of, *(new.column(header).take(rows).to_pylist() for header in TRACE_CONTEXT)))


def context_of(parent: bytes | None, state: bytes | None) -> TraceContext:
    """Return the context in a record's headers. A malformed header counts as missing; a state means nothing without a parent."""
    if parent is None or not _TRACEPARENT.fullmatch(parent):
        return NO_CONTEXT
    context = ((_PARENT, parent.decode()),)
    return context if state is None or not _is_state(state) else (*context, (_STATE, state.decode()))


def missing(context: TraceContext, own: Collection[str]) -> TraceContext:
    """Return the headers of a context that an output lacks. `own`: names of its own headers; a `traceparent` of its own replaces all."""
    return NO_CONTEXT if _PARENT in own else [header for header in context if header[0] not in own]


def _is_state(state: bytes) -> bool:
    members = [each for each in (member.strip(b" \t") for member in state.split(b",")) if each]
    return (
        len(state) <= _STATE_BYTES
        and 0 < len(members) <= _STATE_MEMBERS
        and all(map(_STATE_MEMBER.fullmatch, members))
    )
