"""A test of a transform sees what the job would store, judged by the job's own rules, and needs no server."""

import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest

from service.errors import SettingsError
from service.settings import SessionSettings, Settings, SourceSettings, TracingSettings
from spark_job import OutputEvent, Session
from spark_job.testing import Record, StoredOutput, run

SETTINGS = Settings(source=SourceSettings(topics=("in",)))


def event(kind: str, key: str = "k", **more: Any) -> dict[str, Any]:
    """A value as the default settings read it."""
    return {"session_key": key, "event_type": f"{kind}_event", **more}


def numbers(session: Session) -> Iterator[OutputEvent]:
    """One output for each entry."""
    for entry in session.of("entry_event"):
        yield OutputEvent("out", {"n": entry.value["n"]})


WHOLE = [event("start"), event("entry", n=1), event("entry", n=2), event("end")]


def test_outputs_are_as_they_are_stored() -> None:
    def transform(_: Session) -> Iterator[OutputEvent]:
        yield OutputEvent("a", {"é": 1})
        yield OutputEvent(
            "b", b"\xff", "other", [("h", "text"), ("raw", b"\xff")], 3, datetime(2026, 1, 2, tzinfo=UTC)
        )
        yield OutputEvent("c", None, b"\x00")

    (session,) = run(transform, WHOLE, SETTINGS).sessions
    assert session.outputs == (
        StoredOutput("a", b"k", '{"é":1}'.encode()),
        StoredOutput(
            "b", b"other", b"\xff", (("h", b"text"), ("raw", b"\xff")), 3, datetime(2026, 1, 2, tzinfo=UTC)
        ),
        StoredOutput("c", b"\x00", None),
    )
    assert session.session.start.offset == 0
    assert session.session.end == ("in", 0, 3)


def test_records_are_judged_as_by_the_job() -> None:
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    result = run(
        numbers,
        [
            event("entry", "orphan", n=0),
            b"not JSON",
            Record(event("start", "late"), timestamp=noon),
            *WHOLE,
            Record(event("end", "late"), timestamp=noon + timedelta(minutes=5)),
            event("start", "open"),
        ],
        SETTINGS,
    )
    assert [(each.first_offset, each.reason) for each in result.letters] == [
        (0, "no_start"),
        (1, "malformed"),
        (2, "timed_out"),
        (7, "no_start"),
    ]
    assert result.open == ["open"]
    assert [output.value for output in result.outputs] == [b'{"n":1}', b'{"n":2}']


def test_clock_records_show_silence_where_the_settings_say_so() -> None:
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    log: list[Record | dict[str, Any]] = [
        Record(event("start"), timestamp=noon),
        *(
            Record(None, headers=[("outbox-clock", "1")], timestamp=noon + timedelta(minutes=minutes))
            for minutes in (2, 3)
        ),
    ]
    session = SessionSettings(on_timeout="emit", clock_records=True)
    found = run(numbers, log, SETTINGS.model_copy(update={"session": session}))
    assert [each.session.ended_by for each in found.sessions] == ["timeout"]
    assert (found.letters, found.open) == ([], [])
    off = run(numbers, log, SETTINGS)
    assert ([each.reason for each in off.letters], off.open) == (["malformed"] * 2, ["k"])


def test_a_session_over_a_limit_comes_in_parts_where_only_silence_ends_it() -> None:
    silent = SessionSettings(start="", entry="*", end="", on_timeout="emit", max_events=2)
    result = run(
        lambda each: [OutputEvent("out", f"{each.part} {each.ended_by} {len(each.events)}".encode())],
        [*[event("any")] * 5, Record(event("any"), timestamp=datetime(2026, 1, 2, tzinfo=UTC))],
        SETTINGS.model_copy(update={"session": silent}),
    )
    assert [output.value for output in result.outputs] == [b"1 limit 2", b"2 limit 2", b"3 timeout 1"]
    assert (result.letters, result.open) == ([], ["k"])


def test_key_and_type_may_come_from_outside_the_value() -> None:
    of = Settings(session=SessionSettings(key="key", type="header:kind"))
    records = [Record(b"{}", "k", [("kind", f"{kind}_event")]) for kind in ("start", "end")]
    (session,) = run(lambda s: [OutputEvent("out", {"key": s.key})], records, of).sessions
    assert session.outputs == (StoredOutput("out", b"k", b'{"key":"k"}'),)


def test_the_trace_context_that_the_job_adds_is_there() -> None:
    of = Settings(tracing=TracingSettings(propagate=True))
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    records = [Record(event("start")), Record(event("end"), headers=[("traceparent", parent)])]
    (output,) = run(lambda _: [OutputEvent("out", b"")], records, of).outputs
    assert output.headers == (("traceparent", parent.encode()),)


@pytest.mark.parametrize(
    ("outputs", "says"),
    [
        ([OutputEvent("out", 5)], "output 0: its value is int"),  # type: ignore[arg-type]
        (
            [OutputEvent("outbox-progress-" + "0" * 8 + "-0000" * 3 + "-" + "0" * 12, b"")],
            "is the progress topic",
        ),
    ],
)
def test_what_cannot_be_stored_is_a_failure_of_its_session_alone(
    outputs: list[OutputEvent], says: str
) -> None:
    def transform(session: Session) -> list[OutputEvent]:
        return outputs if session.key == "bad" else []

    result = run(transform, [*WHOLE, event("start", "bad"), event("end", "bad")], SETTINGS)
    assert [each.failure is None for each in result.sessions] == [True, False]
    assert says in (result.sessions[1].failure or "")


def test_a_transform_that_raises_is_a_failure_with_its_traceback() -> None:
    def transform(_: Session) -> list[OutputEvent]:
        raise SystemExit("no")

    (session,) = run(transform, WHOLE, SETTINGS).sessions
    assert (session.failure or "").startswith("Traceback")
    assert "SystemExit: no" in (session.failure or "")


def test_json_lines_are_read_as_records(tmp_path: Path) -> None:
    file = tmp_path / "sessions.jsonl"
    file.write_bytes(b"\xef\xbb\xbf" + b"\r\n".join(map(orjson.dumps, WHOLE)) + b"\n\n")
    assert run(numbers, file, SETTINGS) == run(numbers, WHOLE, SETTINGS)
    assert len(run(numbers, file, SETTINGS).outputs) == 2


def test_a_format_with_schemas_says_what_to_do_instead() -> None:
    of = Settings.model_construct(source=SourceSettings(format="avro"))
    with pytest.raises(SettingsError, match="`spark-job try` asks it"):
        run(numbers, [], of)


def test_neither_spark_nor_a_client_of_kafka_is_imported(tmp_path: Path) -> None:
    script = (
        "import sys; from spark_job.testing import run\n"
        "from spark_job import OutputEvent\n"
        "run(lambda s: [OutputEvent('t', b'')], [])\n"
        "print(sorted({'pyspark', 'py4j', 'confluent_kafka'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("[]\n", "")
