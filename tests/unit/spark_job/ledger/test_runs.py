"""What is noted of a run's end is there for the next start, whoever wrote the error's text."""

import psycopg
import pytest
from psycopg.adapt import PyFormat, Transformer

from service.errors import UnavailableError
from spark_job.ledger.runs import STOPPED, because


@pytest.mark.parametrize("foreign", ["a\0b", "\ud800", "\x1b[2J"])
def test_the_reason_of_an_end_can_be_stored_whatever_a_server_said(foreign: str) -> None:
    """A run without an end counts as killed for want of memory: the next one would take a quarter of the events."""
    noted = because(UnavailableError(f"the schema registry answers HTTP 503: {foreign}\nlater"), None)
    dumped = Transformer(psycopg.adapters).get_dumper(noted, PyFormat.AUTO).dump(noted)
    assert dumped == noted.encode()
    assert noted.startswith("UnavailableError: the schema registry answers HTTP 503: ")
    assert noted.endswith("\nlater")
    assert "\x1b" not in noted


def test_the_reason_of_an_end_quotes_no_value() -> None:
    """The row stays for ever, and no erasure searches it."""
    assert because(KeyError("alice"), None) == "KeyError: KeyError"


def test_a_run_that_ended_as_asked_says_so() -> None:
    assert because(None, None) == STOPPED
