"""The open state survives as bytes, and only in the format it was written in."""

import subprocess
import sys

import pytest

from spark_job.sessions import AssemblySettings, UnknownStateVersion, assemble
from spark_job.sessions.state import OpenState
from tests.reference.assembled import table
from tests.reference.model import Record

RULES = AssemblySettings()
START = Record(3, 9, 5, None, b'{"event_type":"start_event","session_key":"\xc3\xa9"}')
END = Record(3, 10, 6, None, START.value.replace(b"start", b"end") if START.value else None)


def test_nothing_open_is_no_state() -> None:
    assert assemble(None, table([], RULES), RULES).open_state is None
    begun = assemble(None, table([START], RULES), RULES)
    assert begun.open_state is not None
    done = assemble(begun.open_state, table([END], RULES), RULES)
    assert (done.open_state, len(done.closed)) == (None, 1)


def test_reading_and_writing_the_state_changes_no_byte() -> None:
    state = assemble(None, table([START], RULES), RULES).open_state
    assert state is not None
    assert OpenState.from_bytes(state).to_bytes() == state
    assert assemble(state, table([], RULES), RULES).open_state == state


def test_a_state_of_an_unknown_version_is_refused_with_the_command_that_mends_it() -> None:
    with pytest.raises(UnknownStateVersion, match="--new-generation"):
        assemble(b"sessions9\n...", table([], RULES), RULES)


def test_the_assembler_imports_neither_spark_nor_postgres_nor_kafka() -> None:
    program = (
        "import sys, spark_job.sessions, spark_job.api;"
        "print([name for name in ('pyspark', 'psycopg', 'confluent_kafka') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
