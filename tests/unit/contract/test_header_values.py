"""Every value of a header is stored so that Postgres takes it, and read back as it was."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from contract.header_values import read, stored


@given(st.binary())
@example(b"a NUL \0 in text")
@example(b"\xff")
@example(b"")
def test_a_value_comes_back_as_it_was(value: bytes) -> None:
    found = json.loads(json.dumps(stored(value)))
    assert read(found) == value
    assert "\\u0000" not in json.dumps(found)


def test_null_is_no_value() -> None:
    assert read(None) is None


@pytest.mark.parametrize("found", [1, [], {}, {"base64": 1}, {"base64": "", "more": ""}, {"base64": "?"}])
def test_anything_else_is_refused(found: object) -> None:
    with pytest.raises(ValueError, match=r"header value|base64|padding|digit"):
        read(found)
