"""An output has the trace context of its session's end event, wherever the input was cut and whatever was lost, or its own."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from service.settings import SessionSettings
from spark_job import OutputEvent
from spark_job.api import Header
from spark_job.assembly import rebuild
from spark_job.outputs import pgcopy
from spark_job.outputs.encoding import EncodedOutputs, encode
from spark_job.outputs.trace_context import TraceContext, context_of
from spark_job.sessions.settings import AssemblySettings
from tests.support.histories.tasks import Job, kafka, run_task, slice_of, task_settings
from tests.support.reference.model import Record

IDS = "4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7"
PARENT = f"00-{IDS}-01"
PARENT_HEADER, STATE_HEADER = ("traceparent", PARENT), ("tracestate", "a=1")


@pytest.mark.parametrize("parent", [PARENT, f"00-{IDS}-00", f"01-{IDS}-01", f"cc-{IDS}-01-what.will=be"])
def test_a_parent_of_any_version_goes_through_unchanged(parent: str) -> None:
    assert context_of(parent.encode(), None) == (("traceparent", parent),)


@pytest.mark.parametrize(
    "parent",
    [
        b"",
        b"\xff\x00",
        PARENT[:-1].encode(),
        PARENT.upper().encode(),
        f"{PARENT}\n".encode(),
        f" {PARENT}".encode(),
        f"{PARENT}-more".encode(),
        f"01-{IDS}-01more".encode(),
        f"01-{IDS}-01-{'x' * 300}".encode(),
        f"ff-{IDS}-01".encode(),
        f"00-{'0' * 32}-00f067aa0ba902b7-01".encode(),
        f"00-4bf92f3577b34da6a3ce929d0e0e4736-{'0' * 16}-01".encode(),
    ],
)
def test_a_malformed_parent_counts_as_none(parent: bytes) -> None:
    assert context_of(parent, b"a=1") == ()
    assert context_of(None, b"a=1") == ()


@pytest.mark.parametrize(
    "state", ["a=1", "a=1,b@c=2", "a=1 , ,\tb=x y!", "0/*_-=~", f"a={'x' * 256}", "a=1," * 32]
)
def test_a_state_goes_through_unchanged(state: str) -> None:
    assert context_of(PARENT.encode(), state.encode()) == (PARENT_HEADER, ("tracestate", state))


@pytest.mark.parametrize(
    "state",
    [
        b"",
        b" , ",
        b"a",
        b"a=",
        b"=1",
        b"A=1",
        b"a=1\x00",
        b"a=b=c",
        b"a=\xff",
        b"a=" + b"x" * 257,
        b"a=1," * 33,
        b"a=1" + b"," * 510,
    ],
)
def test_a_malformed_state_leaves_the_parent(state: bytes) -> None:
    assert context_of(PARENT.encode(), state) == (PARENT_HEADER,)


def encoded(context: TraceContext, *headers: Sequence[Header]) -> EncodedOutputs:
    return encode([OutputEvent("t", b"", headers=each) for each in headers], 10_000, context=context)


def stored(*headers: Sequence[Header]) -> bytes:
    return b"".join(pgcopy.jsonb(orjson.dumps(each)) for each in headers)


@pytest.mark.parametrize("context", [(PARENT_HEADER,), (PARENT_HEADER, STATE_HEADER)])
def test_each_output_has_the_context(context: TraceContext) -> None:
    assert encoded(context, [], [], []).headers == stored(*[list(context)] * 3)
    assert encoded(context).headers is None


def test_an_outputs_own_headers_come_first_and_its_own_parent_replaces_the_context() -> None:
    context = (PARENT_HEADER, STATE_HEADER)
    other, parent, state = ("other", "x"), ("traceparent", "theirs"), ("tracestate", "b=2")
    found = encoded(context, [other], [parent], [state], [])
    assert found.headers == stored([other, *context], [parent], [state, PARENT_HEADER], list(context))


def test_without_a_context_headers_are_what_the_transform_returned() -> None:
    assert encoded((), [], []).headers is None
    assert encoded((), [], [("other", "x")]).headers == pgcopy.NULL + stored([("other", "x")])


# Sessions of several keys at once and one after the other, and what makes a key go event by event: a repeated start, a restart.
EVENTS = (
    "a start; b start; a entry; c start; a start; b entry; c entry; a end; a start; c end; c end; d entry; b start; a entry; d start;"
    " b end; a end; d end; e start; e end"
)
WITHOUT = {9: None, 17: b"malformed"}


def trace_of(offset: int) -> bytes | None:
    """Each record has another one."""
    return WITHOUT.get(offset, f"00-{offset + 1:032x}-{offset + 1:016x}-01".encode())


def log() -> list[Record]:
    """The records of EVENTS."""
    values = [
        orjson.dumps({"session_key": key, "event_type": f"{kind}_event", "n": n})
        for n, (key, kind) in enumerate(map(str.split, EVENTS.split(";")))
    ]
    return [
        Record(0, offset, 1_000 + offset, None, value, traceparent=trace_of(offset))
        for offset, value in enumerate(values)
    ]


def contexts(job: Job) -> dict[int, list[bytes]]:
    """{offset of a session's end: the contexts of its outputs}."""
    return {row.end: re.findall(rb'\["traceparent","([^"]*)"\]', row.fields) for row in job.sessions}


@pytest.mark.guarantee(53)
@pytest.mark.parametrize("size", [1, 4, 1_000])
def test_it_is_the_end_events_wherever_the_input_is_cut(
    size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = log()
    monkeypatch.setattr(rebuild, "committed_records", kafka({0: records}))
    ends = {end: trace_of(end) for end in (7, 9, 15, 16, 17, 19)}
    wanted = {end: [] if end in WITHOUT else [trace] for end, trace in ends.items()}
    for cut in range(1, len(records)):
        job = Job({0: records}, tmp_path / str(cut), SessionSettings(), traced=True)
        for end in (cut, len(records)):
            job.run_batch({0: end}, lose_cache=[0], size=size)
        assert contexts(job) == wanted, f"cut at {cut}"


@pytest.mark.guarantee(53)
def test_a_session_that_timed_out_has_none_wherever_the_input_is_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither that of its last event, which may have been read long ago, nor that of the record that showed the silence."""
    a, b, c, end_of_c = (log()[at] for at in (0, 1, 3, 9))
    later = [
        replace(b, offset=5),
        replace(c, offset=13),
        replace(end_of_c, offset=19, traceparent=trace_of(19)),
    ]
    records = [a, b, *(replace(each, ts=9_000) for each in later)]
    session = SessionSettings(timeout_s=1, grace_s=1, on_timeout="emit")
    monkeypatch.setattr(rebuild, "committed_records", kafka({0: records}))
    for cut in (1, 2, 6, 14, 15, 20):
        job = Job({0: records}, tmp_path / str(cut), session, traced=True)
        for end in (cut, 20):
            job.run_batch({0: end}, lose_cache=[0])
        assert contexts(job) == {0: [], 1: [], 19: [trace_of(19)]}


def test_nothing_is_looked_for_without_the_setting(tmp_path: Path) -> None:
    job = Job({0: log()}, tmp_path, SessionSettings())
    job.run_batch({0: 20})
    assert len(contexts(job)) == 6
    assert not any(contexts(job).values())


def test_it_goes_beside_types_and_keys_in_headers(tmp_path: Path) -> None:
    of = slice_of(rules=AssemblySettings(format="bytes", key_path=None, type_path=None))
    kinds = ("start_event", "end_event")
    records = [
        Record(0, offset, 1_000, "k", b"\xff", kind, traceparent=trace_of(offset))
        for offset, kind in enumerate(kinds)
    ]
    found = run_task(task_settings(tmp_path), {0: of}, {0: records}, traced=True).to_pylist()
    assert (trace_of(1) or b"") in found[0]["fields"]
