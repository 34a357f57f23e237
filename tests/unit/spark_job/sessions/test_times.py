"""A configured time field decides the order of time; texts and numbers become exact epoch milliseconds."""

from dataclasses import replace
from datetime import date
from typing import Any, Literal

import orjson
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_job.sessions.parsing import times
from spark_job.sessions.parsing.times import iso8601_ms
from spark_job.sessions.settings import AssemblySettings
from tests.support.reference.assembled import assembled, expected_outcome
from tests.support.reference.model import Record, epoch_ms, expected_sessions

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
        # java.time's toString: no seconds where they are zero, offsets to the second, the zone's name behind.
        ("2024-01-01T10:15", 1704104100000),
        ("2024-01-01T10:15Z", 1704104100000),
        ("2024-01-01T11:15+01:00[Europe/Paris]", 1704104100000),
        ("2024-01-01T10:15:30.000000001Z[UTC]", 1704104130000),
        ("1800-01-01T00:00+00:53:28", -5364665608000),
        # ISO 8601: basic form, a decimal comma, hours of offset only.
        ("20240101T101500Z", 1704104100000),
        ("20240101T1115+01", 1704104100000),
        ("2024-01-01 10:15:00,5-00", 1704104100500),
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
        "2024-01-01T10",
        "2024-W01-1T10:15Z",
        "2024-001T10:15Z",
        "2024-01-01T10:15.5Z",
        "2024-01-01T10:15[Europe/Paris]",
        "2024-01-01T10:15Z[Europe/Paris",
        "2024-0101T10:15Z",
        "20240101T10:15Z",
        "20240101 1015Z",
        "2024-02-30T10:15Z",
        "-2024-01-01T10:15Z",
        "2024-01-01T10:15+24:00",
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


def test_rules_1_read_the_common_forms_only() -> None:
    texts = pa.array(["2024-01-01T10:15:00Z", "2024-01-01T10:15Z", None])
    _, good = iso8601_ms(texts, common_only=True)
    assert good.tolist() == [True, False, False]


def up_to(most: int) -> st.SearchStrategy[str]:
    return st.integers(0, most).map(lambda number: f"{number:02}")


TEXTS = st.builds(
    "{:04}{dash}{}{dash}{}{}{}{colon}{}{}{}{}{}".format,
    st.integers(0, 9999),
    up_to(13),
    up_to(32),
    st.sampled_from(["T", " ", "_"]),
    up_to(24),
    up_to(60),
    st.sampled_from(["", ":00", ":59", ":60", "00", "59"]),
    st.sampled_from(["", ".", ".1", ",12", ".123", ".123456", ".999999999"]),
    st.sampled_from(
        ["", "Z", "+00:00", "-0130", "+23:59", "+24:00", "+1", "+00:60", "-05", "+01:02:03", "+010203"]
    ),
    st.sampled_from(["", "[UTC]", "[Europe/Paris]", "[]", "[a]b]"]),
    dash=st.sampled_from(["-", "-", ""]),
    colon=st.sampled_from([":", ":", ""]),
)


@settings(max_examples=500, derandomize=True)
@given(st.lists(TEXTS, min_size=1, max_size=20))
def test_iso_8601_is_read_as_the_model_reads_it(texts: list[str]) -> None:
    times, good = iso8601_ms(pa.array(texts))
    for text, ms, is_time in zip(texts, times.tolist(), good.tolist(), strict=True):
        if not text.startswith("0000"):  # out of range: refused by the caller
            assert (ms if is_time else None) == epoch_ms(text, "iso8601")


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


def test_days_that_no_month_has_cost_no_cast_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    casts = []
    cast = times._cast

    def counted(texts: pa.Array, *others: Any) -> None:
        casts.append(len(texts))
        cast(texts, *others)

    monkeypatch.setattr(times, "_cast", counted)
    days = [
        f"{year}-{month:02}-{day:02}"
        for year in (1900, 2000, 2023, 2024)
        for month in range(1, 13)
        for day in (28, 29, 30, 31)
    ]
    found, good = iso8601_ms(pa.array([f"{each}T10:15:30Z" for each in days], pa.string()))
    assert [each for each, right in zip(days, good, strict=True) if right] == [
        each for each in days if is_day(each)
    ]
    assert len(casts) < 5
    assert found[days.index("2024-02-29")] == 1_709_201_730_000


def is_day(text: str) -> bool:
    try:
        return bool(date.fromisoformat(text))
    except ValueError:
        return False
