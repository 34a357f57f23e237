"""What events carry is shown only where the settings say so."""

import traceback

import pytest

from publisher.console.rendering.masking import (
    shown_bytes,
    shown_detail,
    shown_headers,
    shown_key,
    shown_reason,
    shown_traceback,
)

SECRET = "4111 1111 1111 1111"
RAISED = 'Traceback (most recent call last):\n  File "a.py", line 1, in f\n    raise error\n    ^^^^^^^^^^^\n'


def test_a_value_is_its_size_unless_values_are_shown() -> None:
    assert shown_bytes(SECRET.encode(), show=False) == "19 bytes, hidden"
    assert shown_bytes(SECRET.encode(), show=True) == SECRET
    assert shown_bytes(None, show=False) == "null"
    assert shown_bytes(b"\xff\x00\n\xc3\xa9", show=True) == "\\xff\\x00\né"
    assert len(shown_bytes(b"x" * 1_000_000, show=True)) < 5_000


def test_the_sessions_own_key_is_no_secret() -> None:
    assert shown_key(b"k1", "k1", show=False) == "k1"
    assert shown_key(SECRET.encode(), "k1", show=False) == "19 bytes, hidden"


def test_of_headers_only_the_names() -> None:
    assert shown_headers([["trace", SECRET], ["b", None]], show=False) == "trace, b"
    assert shown_headers([["trace", SECRET]], show=True) == f"trace={SECRET}"
    assert shown_headers(None, show=True) == ""


def test_a_message_of_many_quotation_marks_is_hidden_at_once() -> None:
    """Each of them would be looked at as the beginning of a quotation, to the end of the message."""
    assert shown_detail("'" + "\\'" * 5_000, "malformed", show=False) == "… (10,001 characters)"


@pytest.mark.parametrize(
    ("detail", "reason", "hidden"),
    [
        (f"{RAISED}ValueError: no card {SECRET}\n", "transform_failed", "ValueError: …"),
        (f"{RAISED}shop.errors.CardError: {SECRET}", "transform_failed", "shop.errors.CardError: …"),
        # What is behind the first message may all be an event's text.
        (f"{RAISED}ValueError: not a card:\nAnn Smith {SECRET}\n", "transform_failed", "ValueError: …"),
        (f"{RAISED}KeyError: 1\n\n{RAISED}Ann: {SECRET}\n", "transform_failed", "KeyError: …"),
        # The end of a long one, and the last line that a view shows.
        (f"Ann: {SECRET}\n", "transform_failed", "exception: …"),
        (f'  File "a.py", line 1, in f\n{RAISED}Ann: {SECRET}\n', "transform_failed", "exception: …"),
        (SECRET, "transform_failed", "exception: …"),
        (f"field at is not a time: '{SECRET}'", "malformed", "field at is not a time: …"),
        (f"field at is not a time: {SECRET}", "malformed", "field at is not a time: …"),
        (f"schema 5: field at is no time: {SECRET} seconds", "malformed", "schema 5: field at is no time: …"),
        (f'type "{SECRET}\\" x" is unknown', "malformed", "type … is unknown"),
    ],
)
def test_a_message_does_not_quote_the_event(detail: str, reason: str, hidden: str) -> None:
    assert shown_detail(detail, reason, show=False) == hidden
    assert SECRET in shown_detail(detail, reason, show=True)


def test_the_name_of_what_a_transform_really_raised_is_shown() -> None:
    try:
        raise KeyError("page")
    except KeyError as error:
        detail = "".join(traceback.format_exception(error))
        assert shown_detail(detail, "transform_failed", show=False) == "KeyError: …"


def test_a_traceback_is_shown_whole_or_not_at_all() -> None:
    assert shown_traceback("a\nb\n", show=True) == "a\nb\n"
    assert shown_traceback("a\nb\n", show=False) is None
    assert shown_traceback("one line\n", show=True) is None


@pytest.mark.parametrize(
    ("reason", "hidden"),
    [
        (f"ValueError: no card {SECRET}", "ValueError: …"),
        (f"a message with a colon: {SECRET}", "…"),
        (SECRET, "…"),
    ],
)
def test_of_what_a_consumer_set_aside_only_the_exceptions_name(reason: str, hidden: str) -> None:
    assert shown_reason(reason, show=False) == hidden
    assert shown_reason(reason, show=True) == reason
