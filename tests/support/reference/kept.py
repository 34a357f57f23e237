"""Open sessions as a cache gives them back to a process that knows nothing of them."""

from dataclasses import replace

from spark_job.sessions.state.chunks import EventChunk
from spark_job.sessions.state.live_sessions import LiveSessions
from spark_job.sessions.state.open_state import OpenState
from spark_job.sessions.state.segments import Segment


def reread(state: OpenState) -> OpenState:
    """The state with all its segments and chunks written and read again, and everything counted anew."""
    segments = [layer.segment.encoded() for layer in state.live.layers]
    live = LiveSessions.counted([Segment.decoded(memoryview(b"".join(each))) for each in segments])
    held = [
        each._replace(chunk=EventChunk.decoded(memoryview(b"".join(each.chunk.encoded()))))
        for each in state.held
    ]
    return replace(state, live=live, held=tuple(held))
