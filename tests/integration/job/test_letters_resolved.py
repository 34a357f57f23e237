"""A later output that covers a letter resolves it, in the transaction that stores the output."""

from typing import Any

import pytest

from db.statements import statement
from spark_job import OutputEvent
from spark_job.dead_letters import covered
from spark_job.dead_letters.covered import Horizon
from spark_job.ledger import Connection
from spark_job.offsets import Offsets
from tests.integration.job.letter_world import failed, states, unended, with_letters
from tests.integration.job.sink_world import P0, P1, World, letter, session, summary

OUT = [OutputEvent("t", b"v")]


def reading_again(connection: Connection, revision: int = 1) -> World:
    """A generation that reads everything again: its first batch goes to 100, its second to 200."""
    world = World(connection, revision=revision)
    world.plan(0, (0, 0), (100, 50))
    world.plan(1, (100, 50), (200, 90))
    return world


def test_a_session_of_a_later_generation_resolves_the_letters_that_it_covers(writing: Connection) -> None:
    with_letters(
        writing,
        failed("same", 10),
        unended("longer", 20, 30),
        letter("orphan", 44, 44, "no_start"),
        failed("twice", 50),
        failed("twice", 60),
    )
    world = reading_again(writing)
    world.write(
        0,
        session("same", 10, 12, OUT),
        session("longer", 20, 90, OUT),
        session("orphan", 40, 49, []),
        session("twice", 60, 62, OUT),
        session("twice", 50, 52, OUT),
    )
    assert set(states(writing).values()) == {("resolved", 2)}
    rows = writing.execute(
        "SELECT count(*), count(*) FILTER (WHERE state_changed_at > created_at) FROM outbox.dead_letter"
    )
    assert rows.fetchone() == (5, 5)


def test_a_session_that_ends_in_a_later_batch_resolves_a_letter_that_closed_long_before(
    writing: Connection,
) -> None:
    """With a longer timeout: the letter closed at 30, the session at 150."""
    with_letters(writing, unended("k", 20, 30))
    world = reading_again(writing, revision=0)
    world.write(0, summary(0, {0: 20}))
    assert states(writing) == {"k": ("open", None)}
    world.write(1, session("k", 20, 150, OUT), summary(0, {}), sink=world.new_sink())
    assert states(writing) == {"k": ("resolved", 3)}


@pytest.mark.parametrize(
    "closed",
    [
        session("other", 10, 12, OUT),
        session("k", 10, 12, OUT, source=1),
        session("k", 11, 12, OUT),
        session("k", 10, 11, OUT),
        session("k", 20, 30, OUT),
    ],
    ids=["another key", "another partition", "starts later", "ends earlier", "elsewhere"],
)
def test_other_sessions_leave_it_open(writing: Connection, closed: dict[str, Any]) -> None:
    with_letters(writing, failed("k", 10))
    reading_again(writing).write(0, closed)
    assert states(writing) == {"k": ("open", None)}


def test_a_malformed_record_within_a_session_stays_open(writing: Connection) -> None:
    """The session does not hold it, whoever reads it again; it is not written a second time either."""
    with_letters(writing, letter("k", 11, 11, "malformed"), failed("other", 60))
    world = World(writing, high_water=Offsets({P0: 90, P1: 50}), revision=1)
    world.plan(0, (0, 0), (100, 50))
    written = world.write(0, letter("k", 11, 11, "malformed"), session("k", 10, 95, OUT))
    assert written is not None
    assert written.dead_letters == 0
    assert states(writing) == {"k": ("open", None), "other": ("open", None)}


def test_a_malformed_record_is_kept_though_a_session_around_it_is_there(writing: Connection) -> None:
    """Other settings made it malformed, below the high water: the earlier generation left no letter of it."""
    earlier = with_letters(writing)
    earlier.plan(1, (100, 50), (200, 90))
    earlier.write(1, session("k", 110, 150, OUT))
    world = World(writing, high_water=Offsets({P0: 200, P1: 90}))
    world.plan(0, (0, 0), (200, 90))
    written = world.write(0, letter("k", 120, 120, "malformed"), letter("k", 121, 121, "restarted"))
    assert written is not None
    assert written.dead_letters == 1
    assert states(writing) == {"k": ("open", None)}
    reasons = writing.execute("SELECT reason FROM outbox.dead_letter").fetchall()
    assert reasons == [("malformed",)]


def test_an_older_revision_resolves_nothing_of_a_newer_one(writing: Connection) -> None:
    """The newer transform failed; that an older one once did not is no answer."""
    with_letters(writing, failed("k", 10), revision=2)
    reading_again(writing, revision=1).write(0, session("k", 10, 12, OUT))
    assert states(writing) == {"k": ("open", None)}


def test_discarded_letters_stay_discarded(writing: Connection) -> None:
    with_letters(writing, failed("k", 10))
    writing.execute("UPDATE outbox.dead_letter SET state = 'discarded'")
    reading_again(writing).write(0, session("k", 10, 12, OUT))
    assert states(writing) == {"k": ("discarded", None)}


def test_a_letter_is_resolved_by_the_part_that_holds_its_session(writing: Connection) -> None:
    big = [OutputEvent("t", b"x" * 900)]
    with_letters(writing, failed("k", 10), failed("k", 20))
    world = reading_again(writing)
    world.write(
        0, session("k", 10, 12, big), session("k", 20, 22, big), sink=world.new_sink(max_row_bytes=1_000)
    )
    batches = writing.execute(
        "SELECT resolved_batch FROM outbox.dead_letter ORDER BY first_offset"
    ).fetchall()
    assert batches == [(2,), (3,)]


def test_resolving_is_part_of_the_batch(writing: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    with_letters(writing, failed("k", 10))
    world = reading_again(writing)

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("after the letters")

    monkeypatch.setattr("spark_job.storing.insert_ledger_rows", fail)
    with pytest.raises(RuntimeError, match="after the letters"):
        world.write(0, session("k", 10, 12, OUT))
    assert states(writing) == {"k": ("open", None)}


def test_a_generation_that_reads_nothing_again_never_asks(
    writing: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ordinary case costs nothing: the horizon is empty once every session that could cover a letter has closed."""
    with_letters(writing, failed("k", 10), failed("later", 50))
    asked: list[str] = []

    def counted(package: str, name: str) -> Any:
        asked.append(name)
        return statement(package, name)

    monkeypatch.setattr(covered, "statement", counted)
    world = reading_again(writing)
    world.write(0, session("x", 70, 80, OUT), summary(0, {0: 50}))
    assert asked == ["letter_horizon"]
    assert Horizon.read(writing, world.generation)
    world.write(1, session("y", 50, 120, OUT), summary(0, {}))
    assert asked.count("resolve_covered") == 1
    assert not Horizon.read(writing, world.generation)
    world.plan(2, (200, 90), (300, 90))
    asked.clear()
    world.write(2, session("z", 210, 220, OUT), sink=world.new_sink())
    assert asked == ["letter_horizon"]
