"""The text of an error that more people see than the readers of the log quotes no row, no event and no value."""

import errno
from collections.abc import Callable

import orjson
import psycopg
import pytest

from service.errors import RefusedError, UnavailableError, reason_of

QUOTING: dict[str, Callable[[], object]] = {
    "UnicodeDecodeError": b"\xffalice".decode,
    "ValueError": lambda: int("alice"),
    "KeyError": lambda: {"bob": 1}["alice"],
    "JSONDecodeError": lambda: orjson.loads(b"alice"),
}


@pytest.mark.parametrize("kind", QUOTING)
def test_what_a_library_raises_is_named_with_its_line_and_not_quoted(kind: str) -> None:
    with pytest.raises((ValueError, KeyError), match=r".+") as raised:
        QUOTING[kind]()
    said = reason_of(raised.value)
    assert said.startswith(f"{kind} at test_errors.py, line ")
    assert "alice" not in said


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (RefusedError("the topic is missing. Make it"), "the topic is missing. Make it"),
        (UnavailableError("no\nDETAIL:  Key (session_key)=(alice)"), "no"),
        (
            OSError(errno.ENOSPC, "No space left on device", "/cache"),
            "OSError: No space left on device: /cache",
        ),
        (OSError("alice"), "OSError"),
        (psycopg.OperationalError("server closed\n"), "server closed"),
        (psycopg.errors.UniqueViolation("duplicate key\nDETAIL:  (alice)"), "duplicate key"),
        (psycopg.errors.QueryCanceled('canceled\nCONTEXT:  COPY t, line 1: "alice"'), "canceled"),
        (psycopg.errors.InvalidTextRepresentation('type bigint: "alice"'), "InvalidTextRepresentation"),
        (psycopg.DataError("date too large: 'alice'"), "DataError"),
        (psycopg.OperationalError(), "OperationalError"),
        (KeyError("alice"), "KeyError"),
    ],
)
def test_our_own_words_and_those_of_servers_are_kept(error: Exception, said: str) -> None:
    assert reason_of(error) == said
