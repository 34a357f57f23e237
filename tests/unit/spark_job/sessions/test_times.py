"""A configured time field decides the order of time; texts and numbers become exact epoch milliseconds."""

from dataclasses import replace
from typing import Literal

import orjson
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_job.sessions.parsing.times import iso8601_ms
from spark_job.sessions.settings import AssemblySettings
from tests.support.reference.assembled import assembled, expected_outcome
from tests.support.reference.model import Record, _epoch_ms, expected_sessions

RULES = AssemblySettings(time_path=("meta", "at"), timeout_ms=1000)


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("2024-02-29 12:00:00.5+01:00", 1709204400500),
        ("2024-01-01T00:00:00.123456789Z", 1704067200123),
        ("2024-01-01T00:00:00", 1704067200000),
        ("2024-01-01T00:00:00-0530", 1704087000000),
        ("1969-12-31T23:59:59.999Z", -1),
    ],
)
def test_iso_8601_texts_are_exact(text: str, ms: int) -> None:
    times, good = iso8601_ms(pa.array([text]))
    assert (times.tolist(), good.tolist()) == ([ms], [True])


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "soon",
        "2024-01-01",
        "2023-02-29T00:00:00Z",
        "2024-13-01T00:00:00Z",
        "2024-01-01T24:00:00Z",
        "2024-01-01T00:00:60Z",
        "2024-01-01T00:00:00z",
        "2024-01-01T00:00:00Z\n",
        "2024-01-01T00:00:00.Z",
        "2024-01-01T00:00:00+00:60",
        " 2024-01-01T00:00:00Z",
        "\uff12024-01-01T00:00:00Z",
    ],
)
def test_other_texts_are_no_times_and_do_not_harm_their_neighbours(text: str | None) -> None:
    times, good = iso8601_ms(pa.array(["1970-01-01T00:00:01Z", text, "1970-01-01T00:00:02"]))
    assert good.tolist() == [True, False, True]
    assert times[[0, 2]].tolist() == [1000, 2000]


def up_to(most: int) -> st.SearchStrategy[str]:
    return st.integers(0, most).map(lambda number: f"{number:02}")


TEXTS = st.builds(
    "{:04}-{}-{}{}{}:{}:{}{}{}".format,
    st.integers(0, 9999),
    up_to(13),
    up_to(32),
    st.sampled_from(["T", " ", "_"]),
    up_to(24),
    up_to(60),
    up_to(60),
    st.sampled_from(["", ".", ".1", ".12", ".123", ".123456", ".999999999"]),
    st.sampled_from(["", "Z", "+00:00", "-0130", "+23:59", "+24:00", "+1", "+00:60"]),
)


@settings(max_examples=100, derandomize=True)
@given(st.lists(TEXTS, min_size=1, max_size=20))
def test_iso_8601_is_read_as_the_standard_library_reads_it(texts: list[str]) -> None:
    times, good = iso8601_ms(pa.array(texts))
    for text, ms, is_time in zip(texts, times.tolist(), good.tolist(), strict=True):
        if not text.startswith("0000"):  # out of range: refused by the caller
            assert (ms if is_time else None) == _epoch_ms(text, "iso8601")


@pytest.mark.parametrize("time_format", ["iso8601", "epoch_ms"])
def test_the_configured_field_and_not_the_record_decides_the_time(
    time_format: Literal["iso8601", "epoch_ms"],
) -> None:
    rules = replace(RULES, time_format=time_format)
    texts = {0: "1970-01-01T00:00:00Z", 500: "1970-01-01T00:00:00.500", 1501: "1970-01-01T01:00:01.501+01:00"}
    log = []
    for offset, (kind, ms) in enumerate([("start", 0), ("entry", 500), ("end", 1501), ("end", None)]):
        at = ms if time_format == "epoch_ms" or ms is None else texts[ms]
        body = {"event_type": f"{kind}_event", "session_key": "k", "meta": {"at": at}}
        log.append(Record(0, offset, 77, None, orjson.dumps(body)))
    found = assembled([log[:1], log[1:]], rules)
    assert [(letter.reason, letter.closing_offset) for letter in found.letters] == [
        ("timed_out", 2),
        ("no_start", 2),
        ("malformed", 3),
    ]
    assert found == expected_outcome(expected_sessions(log, rules))
