"""Whether a record is malformed depends on the record alone, and is what a careful JSON decoder would say."""

import random
from dataclasses import replace

import orjson
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_job.sessions.assembler import assemble
from spark_job.sessions.errors import InputSchemaError
from spark_job.sessions.parsing.json_documents import Decoder
from spark_job.sessions.settings import AssemblySettings
from spark_job.sessions.state.open_state import OpenState
from tests.support.reference.assembled import assembled, table
from tests.support.reference.model import Record, parse

RULES = AssemblySettings()
GOOD = b'{"event_type":"start_event","session_key":"k"}'


def one(
    value: bytes | None, key: str | bytes | None = None, rules: AssemblySettings = RULES
) -> tuple[str, str | None, str] | None:
    """Reason, key and detail of a single record's letter; None where it is well-formed. `key`: the record's own."""
    result = assemble(OpenState.empty(), table([Record(0, 7, 0, key, value, "start_event")], rules), rules)
    if not result.letters:
        assert len(result.state.sessions) == 1
        return None
    (letter,) = result.letters
    assert (letter.first_offset, letter.last_offset, letter.closing_offset, letter.n_events) == (7, 7, 7, 1)
    assert letter.events == [(7, 0, value)]
    assert result.state.digest == ""
    return letter.reason, letter.key, letter.detail


KINDS: dict[str, tuple[bytes | None, str | None, str]] = {
    "no value": (None, None, "no value"),
    "empty": (b"", None, "not JSON"),
    "not UTF-8": (b'{"event_type":"start_event","session_key":"k","z":"\xff"}', None, "not UTF-8"),
    "not JSON": (b'{"event_type":', None, "not JSON"),
    "null": (b"null", None, "not a JSON object but NoneType"),
    "array": (b"[1]", None, "not a JSON object but list"),
    "two documents": (GOOD + GOOD, None, "not JSON"),
    "two documents and a space": (GOOD + b" " + GOOD, None, "not JSON"),
    "document and null": (b"{}null}", None, "not JSON"),
    "document and null in braces": (GOOD + b" null{}", None, "not JSON"),
    "line break in a string": (
        b'{"event_type":"start_event","session_key":"k","z":"a\nb"}',
        None,
        "not JSON",
    ),
    "byte order mark": (b"\xef\xbb\xbf" + GOOD, None, "not JSON"),
    "NaN": (b'{"event_type":"start_event","session_key":"k","z":NaN}', None, "not JSON"),
    "Infinity": (b'{"event_type":"start_event","session_key":"k","z":-Infinity}', None, "not JSON"),
    "number over all bounds": (b'{"event_type":"start_event","session_key":"k","z":1e999}', None, "not JSON"),
    "half a surrogate pair": (
        b'{"event_type":"start_event","session_key":"k","z":"\\ud800"}',
        None,
        "not JSON",
    ),
    "trailing comma": (b'{"event_type":"start_event","session_key":"k",}', None, "not JSON"),
    "no type": (b'{"session_key":"k"}', "k", "no readable field event_type"),
    "type null": (b'{"event_type":null,"session_key":"k"}', "k", "no readable field event_type"),
    "type a number": (b'{"event_type":1,"session_key":"k"}', "k", "field event_type is not a string"),
    "type an object": (b'{"event_type":{},"session_key":"k"}', "k", "field event_type is not a string"),
    "type twice": (
        b'{"event_type":"start_event","event_type":"start_event","session_key":"k"}',
        "k",
        "occurs twice",
    ),
    "unknown type": (b'{"event_type":"begin","session_key":"k"}', "k", "unknown type 'begin'"),
    "no key": (b'{"event_type":"start_event"}', None, "no readable field session_key"),
    "key a number": (b'{"event_type":"start_event","session_key":7}', None, "session_key is not a string"),
    "empty key": (b'{"event_type":"start_event","session_key":""}', None, "the key is empty"),
    "NUL in the key": (b'{"event_type":"start_event","session_key":"a\\u0000b"}', None, "contains NUL"),
    "key over 1 kB": (
        orjson.dumps({"event_type": "start_event", "session_key": "é" * 513}),
        None,
        "1026 bytes",
    ),
    "nested 100,000 deep": (
        b'{"event_type":"start_event","session_key":"k","z":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        None,
        "not JSON",
    ),
    "opened 100,000 times": (b'{"z":' * 100_000 + b"}", None, "not JSON"),
}


@pytest.mark.guarantee(13, 61)
@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_malformed_record_is_a_letter_with_its_exact_bytes(kind: str) -> None:
    value, key, words = KINDS[kind]
    found = one(value)
    assert found is not None
    reason, shown, detail = found
    assert (reason, shown) == ("malformed", key)
    assert words in detail


HEADERS_ONLY = AssemblySettings(type_path=None, key_path=None)


@pytest.mark.parametrize(
    ("key", "value", "shown", "words"),
    [
        (None, b"{}", None, "no key"),
        (b"\xff", b"{}", None, "the key is not UTF-8"),
        (b"", b"{}", None, "the key is empty"),
        ("a\0b", b"{}", None, "the key contains NUL"),
        ("é" * 513, b"{}", None, "the key has 1026 bytes, over 1024"),
        ("k", b"{", "k", "not JSON"),
        ("k", b"\xff", "k", "the value is not UTF-8"),
        ("k", None, "k", "no value"),
    ],
)
def test_a_key_that_is_the_records_own_is_checked_as_one_in_the_value(
    key: str | bytes | None, value: bytes | None, shown: str | None, words: str
) -> None:
    assert one(b"{}", "k", HEADERS_ONLY) is None
    found = one(value, key, HEADERS_ONLY)
    assert found is not None
    assert found[1] == shown
    assert words in found[2]


@pytest.mark.guarantee(5)
@pytest.mark.parametrize(
    "value",
    [
        b" \t" + GOOD + b"\r\n",
        b'{\n  "event_type": "start_event",\r\n  "session_key": "k"\n}',
        b'{"event\\u005ftype":"start_event","session_key":"\\u006b"}',
        b'{"event_type":"start_event","session_key":"k","z":"NaN } null Infinity","y":[{} ,null]}',
        b'{"event_type":"start_event","session_key":"k","z":1,"z":2}',
        b'{"event_type":"start_event","session_key":"k","z":123456789012345678901234567890}',
        b'{"event_type":"start_event","session_key":"k","z":' + b"[" * 900 + b"]" * 900 + b"}",
        b'{"event_type":"start_event","session_key":"k","z":"' + b"[" * 10**6 + b'"}',
    ],
)
def test_any_other_spelling_of_a_good_record_is_well_formed_and_kept_byte_by_byte(value: bytes) -> None:
    assert one(value) is None
    log = [Record(0, 0, 0, None, value), Record(0, 1, 0, None, GOOD.replace(b"start", b"end"))]
    assert assembled([log], RULES).sessions[0].events[0].raw == value


@pytest.mark.guarantee(13)
@pytest.mark.parametrize("key", ["k", "é" * 512, "\U0001f511", " "])
def test_keys_of_up_to_a_kilobyte_of_utf8_are_keys(key: str) -> None:
    assert one(orjson.dumps({"event_type": "start_event", "session_key": key})) is None


PIECES = [
    *[
        b"{",
        b"}",
        b"[",
        b"]",
        b",",
        b":",
        b'"e"',
        b'"d"',
        b'"k"',
        b'"n"',
        b'"x"',
        b"null",
        b"true",
        b"1",
        b"-0",
        b"1.5",
    ],
    *[
        b"1e5",
        b"1e999",
        b"NaN",
        b"Inf",
        b"-Infinity",
        b" ",
        b"\t",
        b"\n",
        b"\r",
        b'"',
        b"\\",
        b"\\u0041",
        b"\\ud800",
    ],
    *[
        b"\x00",
        b"\x01",
        b"//",
        b"/*",
        b"*/",
        b"a",
        "é".encode(),
        b'"z":',
        b'"e":"v"',
        b'"d":{"k":"w"}',
        b'"n":7',
    ],
    *[
        b"}{",
        b"{}",
        b"},{",
        b"}null",
        b"} null",
        b"}1",
        b'}"a"',
        b"}true",
        b"}[",
        b'{"e":"v"}',
        b'{"d":{"k":"v"}}',
    ],
]
PATHS: list[tuple[tuple[str, ...], pa.DataType]] = [
    (("e",), pa.string()),
    (("d", "k"), pa.string()),
    (("n",), pa.int64()),
]
NESTED = AssemblySettings(
    type_path=("e",),
    key_path=("d", "k"),
    time_path=("n",),
    time_format="epoch_ms",
    start="v",
    entry="a",
    end="b",
)
SEEDS = [b'{"e":"v","d":{"k":"w"},"n":7}', b'{"e":"a","z":[1,{"q":null},"s}{"],"d":{"k":"b","r":2},"n":-5}']


@st.composite
def payloads(draw: st.DrawFn) -> bytes:
    """Rubbish that starts like JSON, and JSON with up to three wounds."""
    if draw(st.booleans()):
        return b"{" + b"".join(draw(st.lists(st.sampled_from(PIECES), max_size=8))) + b"}"
    value = bytearray(draw(st.sampled_from(SEEDS)))
    for _ in range(draw(st.integers(0, 3))):
        low = draw(st.integers(0, len(value)))
        value[low : low + draw(st.integers(0, 2))] = draw(st.sampled_from(PIECES))
    return bytes(value)


@pytest.mark.guarantee(13)
@settings(max_examples=200, derandomize=True)
@given(st.lists(payloads(), min_size=1, max_size=40))
def test_a_blocks_verdict_on_each_record_is_the_models_on_that_record_alone(values: list[bytes]) -> None:
    records = [Record(0, offset, 0, None, value) for offset, value in enumerate(values)]
    got = assemble(OpenState.empty(), table(records, NESTED), NESTED)
    malformed = {letter.first_offset for letter in got.letters if letter.reason == "malformed"}
    assert malformed == {record.offset for record in records if parse(record, NESTED) is None}


def test_thousands_of_bad_records_among_good_ones_are_told_apart() -> None:
    rng = random.Random(5)
    good = orjson.dumps({"e": "v", "d": {"k": "w"}, "n": 7})
    bad = [
        b"{",
        b'{"e":1}',
        b'{"e":"v","e":"v"}',
        good + good,
        b"x",
        b'{"n":1.0}',
        b'{"n":99999999999999999999}',
    ]
    values = [rng.choice(bad) if rng.random() < 0.2 else good for _ in range(5000)]
    fields = Decoder(PATHS).decode(pa.array(values, pa.large_binary()))
    assert fields.rows.tolist() == [row for row, value in enumerate(values) if value == good]
    assert fields.column(("d", "k")).to_pylist() == ["w"] * len(fields.rows)


def test_one_bad_record_in_a_large_block_costs_only_itself() -> None:
    values = [b'{"e":"%d"}' % row for row in range(20_000)]
    values[12_345] = b'{"e":"v","e":"v"}'
    fields = Decoder(PATHS).decode(pa.array(values, pa.large_binary()))
    assert len(fields.rows) == 19_999
    assert fields.column(("e",)).to_pylist() == [str(row) for row in range(20_000) if row != 12_345]


@pytest.mark.parametrize(
    "bad",
    [
        b'{"e":"v","e":"w"}',
        b'{"e":"v","\\u0065":"w"}',
        b'{"d":{"k":"v"},"d":null}',
        b'{"d":{"k":"v","k":"v"}}',
        b'{"d":5}',
        b'{"e":"v","z":1e400}',
        b'{"e":"v","z":0e999}',
        b'{"e":"v","z":1.0e310}',
        b'{"e":"v","z":1e0000000003099}',
        b'{"e":5,"z":' + b"1" * 400 + b"}",
        b'{"n":' + b"1" * 400 + b"}",
        b'{"n":1.5}',
        b'{"e":"\\ud800"}',
    ],
)
def test_what_is_wrong_with_many_records_costs_no_block_for_each(
    bad: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed = []
    parse_block = Decoder._parse

    def counted(decoder: Decoder, values: pa.LargeBinaryArray) -> pa.Table | None:
        parsed.append(len(values))
        return parse_block(decoder, values)

    monkeypatch.setattr(Decoder, "_parse", counted)
    good = b'{"e":"v","d":{"k":"w"}}'
    for values in ([bad] * 2_000, [bad, good] * 1_000):
        parsed.clear()
        fields = Decoder(PATHS).decode(pa.array(values, pa.large_binary()))
        assert len(fields.rows) == values.count(good)
        assert len(parsed) < 40


def test_broken_records_that_add_up_to_the_right_number_of_documents_are_still_malformed() -> None:
    values = [b'{"z":', b'{"e":"v"}}', b"{}{}", b'{"e":"v"}']
    fields = Decoder(PATHS).decode(pa.array(values, pa.large_binary()))
    assert fields.rows.tolist() == [3]


@pytest.mark.guarantee(13)
@pytest.mark.parametrize(
    "number",
    [b"1.8e308", b"-9E+308", b"0.00018e312", b"9" * 400, b"1" + b"0" * 250 + b"e99", b"1e999", b"0e999"],
)
def test_a_number_that_no_float_holds_is_judged_alike_whatever_its_neighbours_are(number: bytes) -> None:
    value = b'{"e":"v","z":' + number + b"}"
    alone = len(Decoder(PATHS).decode(pa.array([value], pa.large_binary())).rows) == 1
    good, bad = b'{"e":"v"}', b'{"e":1}'
    for before, after in (([], [bad]), ([bad, good], [good]), ([good], [b"{{}"]), ([value], [bad, value])):
        values = [*before, value, *after]
        rows = Decoder(PATHS).decode(pa.array(values, pa.large_binary())).rows.tolist()
        assert rows == [row for row, each in enumerate(values) if each == good or (each == value and alone)]


def random_number(rng: random.Random) -> bytes:
    """One around the bounds of a 64-bit float, by its exponent or by its digits."""
    digits = rng.choice([b"0", b"9007199254740993", b"%d" % rng.randrange(10 ** rng.randint(1, 350))])
    zeros, rest = b"0" * rng.choice([0, 3, 200]), b"%d" % rng.randrange(10 ** rng.randint(1, 40))
    fraction = rng.choice([b"", b".0", b"." + zeros + rest])
    exponent = 308 + rng.choice([0, 17, len(fraction), rng.randint(-330, 300)]) + rng.randint(-2, 2)
    sign = rng.choice([b"e", b"E+", b"e-"]) + rng.choice([b"", b"0" * 12])
    return digits + fraction + rng.choice([b"", sign + b"%d" % exponent])


def test_numbers_that_no_float_holds_cost_no_block_for_each_and_a_text_beside_them_is_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng, decoder, parsed = random.Random(1), Decoder(PATHS), []
    texts = [b"", b"\\ue000", b"\\uE308.", b"\\\\e400", b'\\"0e999', b"9" * 300]
    values = [b'{"e":"%b","z":%b}' % (rng.choice(texts), random_number(rng)) for _ in range(1_500)]
    alone = [bool(len(decoder.decode(pa.array([value], pa.large_binary())).rows)) for value in values]
    assert 100 < sum(alone) < 1_400
    parse_block = Decoder._parse

    def counted(of: Decoder, values: pa.LargeBinaryArray) -> pa.Table | None:
        parsed.append(len(values))
        return parse_block(of, values)

    monkeypatch.setattr(Decoder, "_parse", counted)
    rows = decoder.decode(pa.array(values, pa.large_binary())).rows.tolist()
    assert rows == [row for row, good in enumerate(alone) if good]
    assert len(parsed) < 40


def test_a_slice_of_a_larger_column_is_decoded_as_itself() -> None:
    values = pa.array([b"{", b'{"e":"1"}', b'{"e":\n"2"}', b'{"e":"3"}', b"}"], pa.large_binary())
    fields = Decoder(PATHS).decode(values.slice(1, 3))
    assert (fields.rows.tolist(), fields.column(("e",)).to_pylist()) == ([0, 1, 2], ["1", "2", "3"])


def test_a_configured_event_id_or_time_that_is_missing_is_malformed() -> None:
    found = one(GOOD, rules=replace(RULES, event_id_path=("id",)))
    assert found is not None
    assert found[2] == "no readable field id"
    found = one(GOOD, rules=replace(RULES, time_path=("meta", "at")))
    assert found is not None
    assert found[2] == "no readable field meta.at"
    found = one(GOOD[:-1] + b',"at":"soon"}', rules=replace(RULES, time_path=("at",)))
    assert found is not None
    assert found[2] == "field at is not a time: 'soon'"


def test_what_is_wrong_with_a_record_is_said_shortly_however_long_it_is() -> None:
    long = "\x01é" * 100_000
    for field, rules in (("event_type", RULES), ("at", replace(RULES, time_path=("at",)))):
        document = {"event_type": "start_event", "session_key": "k", "at": "now", field: long}
        found = one(orjson.dumps(document), rules=rules)
        assert found is not None
        assert f"{'x01é' * 10}" in found[2].replace("\\", "")
        assert len(found[2]) < 1_000


@pytest.mark.parametrize("ms", [-62_135_596_800_001, 253_402_300_800_000, 10**15, 2**63 - 1, -(2**63)])
def test_a_time_that_no_datetime_can_hold_is_malformed(ms: int) -> None:
    (letter,) = assemble(OpenState.empty(), table([Record(0, 0, ms, None, GOOD)], RULES), RULES).letters
    assert (letter.reason, letter.detail) == ("malformed", f"the record's timestamp {ms} is out of range")


@pytest.mark.parametrize("ms", [-62_135_596_800_000, 253_402_300_799_999])
def test_the_first_and_the_last_time_of_a_datetime_are_times(ms: int) -> None:
    result = assemble(OpenState.empty(), table([Record(0, 0, ms, None, GOOD)], RULES), RULES)
    assert (len(result.state.sessions), result.letters) == (1, [])


def test_a_table_of_another_shape_is_refused_with_the_columns_name() -> None:
    new = table([Record(0, offset, 0, None, GOOD) for offset in (3, 4)], RULES)
    with pytest.raises(InputSchemaError, match=r"lacks 'value'; it has \['offset', 'ts', 'by_broker'\]"):
        assemble(OpenState.empty(), new.drop_columns(["value"]), RULES)
    with pytest.raises(InputSchemaError, match="column offset must be int64, not int32"):
        assemble(OpenState.empty(), new.set_column(0, "offset", new.column("offset").cast(pa.int32())), RULES)
    with pytest.raises(InputSchemaError, match="lacks 'type'"):
        assemble(OpenState.empty(), new, replace(RULES, type_path=None))
    with pytest.raises(InputSchemaError, match="lacks 'key'"):
        assemble(OpenState.empty(), new, replace(RULES, key_path=None))


@pytest.mark.parametrize("order", [[1, 0], [0, 0]])
def test_records_that_are_not_in_the_order_of_their_offsets_are_refused(order: list[int]) -> None:
    new = table([Record(0, offset, 0, None, GOOD) for offset in (3, 4)], RULES).take(order)
    with pytest.raises(InputSchemaError, match="not in offset order"):
        assemble(OpenState.empty(), new, RULES)
