"""What stands in a consumer's tables is the consumer's: a row that says nothing is a finding, and the audit of the others continues."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from outbox_consumer.reading import ConsumerTables
from outbox_consumer.store import Store
from publisher.audit.consumer import checks
from publisher.audit.consumer.checks import ReadBack, check_consumed
from publisher.audit.findings import Check
from publisher.audit.readback.digest import (
    EXPECTED,
    NONE,
    NOT_REPLAYED,
    RECEIVED,
    Mark,
    content_of,
    identity_of,
    partition_number,
)
from publisher.audit.readback.spill import Spill
from publisher.audit.readback.state import AuditState
from publisher.audit.readback.topics import Topic
from publisher.trace.consumers import consumer_tables

SEEN = "INSERT INTO outbox_consumer_seen VALUES ('c', ?, ?, ?, ?, NULL, 't', 0, ?, ?, false)"
LETTER = "INSERT INTO outbox_consumer_letter VALUES ('c', 't', 'id', 0, ?, ?, ?, NULL, NULL, NULL, '[]', NULL, 'x', '')"
AT = "2026-01-01 00:00:00"
WRONG: dict[str, tuple[str, tuple[Any, ...]]] = {
    "no partition": (SEEN, ("T", 5, 0, 0, 9, AT)),
    "a word as partition": (SEEN, ("T/x", 5, 0, 0, 9, AT)),
    "a partition below 0": (SEEN, ("T/-1", 5, 0, 0, 9, AT)),
    "a partition beyond Kafka's": (SEEN, (f"T/{2**40}", 5, 0, 0, 9, AT)),
    "an end below 0": (SEEN, ("T/0", -5, 0, 0, 9, AT)),
    "an end that is no number": (SEEN, ("T/0", "x", 0, 0, 9, AT)),
    "an output beyond all": (SEEN, ("T/0", 5, 2**40, 0, 9, AT)),
    "a revision that is no number": (SEEN, ("T/0", 5, 0, "x", 9, AT)),
    "no time": (SEEN, ("T/0", 5, 0, 0, 9, "never")),
    "bytes": (SEEN, (b"\xff/0", 5, 0, 0, 9, AT)),
    "nothing": (SEEN, (None, None, None, 0, 9, AT)),
    "a letter of no output": (LETTER, (9, "T/0", 0)),
    "a letter beyond all": (LETTER, (9, f"T/0/5/{2**40}", 0)),
    "a letter that is a number": (LETTER, (9, 7, 0)),
    "a source without a partition was forgotten": ("INSERT INTO outbox_consumer_forgotten VALUES ('c', ?, ?)", ("T", 5)),
    "an end that is no number was forgotten": ("INSERT INTO outbox_consumer_forgotten VALUES ('c', ?, ?)", ("T/0", "x")),
    "a position that is no number": ("INSERT INTO outbox_consumer_position VALUES ('c', 't', 1, 'id', 0, ?, NULL, '')", ("x",)),
}  # fmt: skip


@pytest.fixture
def consumer(tmp_path: Path) -> Path:
    """A database of consumer `c`, which has consumed the one output T/0/3/0 from offset 4 of topic `t`."""
    path = tmp_path / "consumer.db"
    with closing(sqlite3.connect(path)) as connection:
        Store(connection, "c").prepare()
        connection.execute(SEEN, ("T/0", 3, 0, 0, 4, AT))
        connection.execute("INSERT INTO outbox_consumer_position VALUES ('c', 't', 0, 'id', 0, 10, NULL, '')")
        connection.commit()
    return path


def audited(consumer: Path, folder: Path, begun: Callable[[str], None] = lambda _: None) -> list[Check]:
    """The checks of that database against an outbox with that output, which was delivered. `begun`: told of each phase."""
    state = AuditState(
        {}, {}, 1, ["t"], 1, begins=[{"0": 0, "1": 0}], ends=[{"0": 20, "1": 20}], lows=[{"0": 0, "1": 0}]
    )
    state.inputs = ["T"]
    identity, content = identity_of(b"T/0/3/0", 0), content_of(None, b"", [])
    expected, found = Spill(folder, "expected", EXPECTED, 1), Spill(folder, "found", RECEIVED, 1)
    expected.append(
        0,
        EXPECTED.pack(identity, content, bytes(8), bytes(8), 1, 0, 0, 0, 0, NONE, NONE, Mark.DEMANDED, 1),
    )
    found.append(
        0, RECEIVED.pack(identity, content, 0, 0, 4, NONE, 0, 3, partition_number(0, 0), NOT_REPLAYED, 0)
    )
    broker: Any = type(
        "Broker", (), {"describe": lambda _, names: [Topic(name, "id", 2) for name in names]}
    )()
    read = ReadBack(state, folder, expected, found, lambda _: None)

    def phase(name: str, _steps: int) -> Callable[[int], None]:
        begun(name)
        return lambda _: None

    return check_consumed(f"sqlite:///{consumer}", read, broker, phase).checks


def test_a_consumer_without_such_a_row_is_clean(consumer: Path, tmp_path: Path) -> None:
    assert [check.name for check in audited(consumer, tmp_path / "audit") if check.count] == []


@pytest.mark.guarantee(127)
@pytest.mark.parametrize("name", WRONG)
def test_a_row_that_cannot_be_read_is_found_and_named(name: str, consumer: Path, tmp_path: Path) -> None:
    statement, values = WRONG[name]
    with closing(sqlite3.connect(consumer)) as connection:
        connection.execute(statement, values)
        connection.commit()
    found = {check.name: check for check in audited(consumer, tmp_path / "audit") if check.count}
    assert list(found) == ["consumer_rows"]
    (example,) = found["consumer_rows"].examples
    assert example.startswith("c: outbox_consumer_")
    assert found["consumer_rows"].failed


def test_no_transaction_is_open_in_the_consumers_database_while_rows_are_compared(
    consumer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_open = False
    phases: list[tuple[str, bool]] = []

    @contextmanager
    def watched(dsn: str, application: str) -> Iterator[ConsumerTables]:
        nonlocal is_open
        with consumer_tables(dsn, application) as tables:
            is_open = True
            yield tables
        is_open = False

    monkeypatch.setattr(checks, "consumer_tables", watched)
    with closing(sqlite3.connect(consumer)) as connection:
        connection.execute(
            "INSERT INTO outbox_consumer_position SELECT 'd', topic, partition, topic_id, 0, 0, NULL, '' FROM outbox_consumer_position"
        )
        connection.commit()
    audited(consumer, tmp_path / "audit", lambda name: phases.append((name, is_open)))
    assert phases == [
        ("reading consumer c", True),
        ("comparing consumer c", False),
        ("reading consumer d", True),
        ("comparing consumer d", False),
    ]
