"""A transform reads its events as classes of its own, and learns which field of which record is none of theirs."""

import copy
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, cast

import orjson
import pytest
from pydantic import BaseModel, ConfigDict

from spark_job import Event, EventError, Position, Session
from spark_job.api import EncodedEvent, event_class
from spark_job.sessions.assembler import assemble
from spark_job.sessions.session import to_session
from spark_job.sessions.settings import AssemblySettings
from spark_job.sessions.state.open_state import OpenState
from tests.support.reference.assembled import table
from tests.support.reference.model import Record


class Item(BaseModel):
    model_config = ConfigDict(strict=True)

    sku: str
    cents: int
    added_at: datetime = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Line:
    sku: str
    cents: int


GOOD = {"sku": "a", "cents": 250, "event_type": "entry_event"}


def test_a_value_is_read_as_a_model_or_as_a_dataclass() -> None:
    event = Event.of("entry_event", GOOD | {"added_at": "2026-02-03T04:05:06Z"})
    assert event.as_(Item) == Item(sku="a", cents=250, added_at=datetime(2026, 2, 3, 4, 5, 6, tzinfo=UTC))
    assert event.as_(Line) == Line("a", 250)


def test_a_decoded_value_is_read_too() -> None:
    event = EncodedEvent(lambda _: GOOD, "entry_event", b"\0\0\0\0\1x", 0, 3)
    assert event.as_(Line) == Line("a", 250)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ({"sku": "a"}, "cents: Field required"),
        ({"sku": "a", "cents": "x" * 200}, "cents: Input should be a valid integer"),
        ({"sku": 7, "cents": 1}, "sku: Input should be a valid string (it is 7)"),
    ],
)
@pytest.mark.parametrize("model", [Item, Line])
def test_an_event_that_is_no_such_model_names_its_record_and_the_field(
    value: dict[str, Any], says: str, model: type
) -> None:
    event = event_class(Event, "orders.events", 3)("entry_event", Event.of("x", value).raw, 0, 17)
    with pytest.raises(EventError) as refused:
        event.as_(model)
    text = str(refused.value)
    assert text.startswith(f"entry_event at orders.events/3 offset 17 is no {model.__name__}: {says}")
    assert len(text) < 300
    assert refused.value.__suppress_context__


def test_every_wrong_field_is_named() -> None:
    with pytest.raises(EventError, match=r"offset 4 is no Line: sku: Field required; cents: Field required"):
        Event.of("entry_event", {}, offset=4).as_(Line)


def test_a_class_that_cannot_be_read_is_no_fault_of_the_event() -> None:
    class Other:
        pass

    with pytest.raises(TypeError, match="Other is neither a pydantic model nor a dataclass"):
        Event.of("entry_event", GOOD).as_(Other)


VALUES: list[dict[str, Any]] = [
    {"session_key": "k", "event_type": "start_event"},
    {"session_key": "k", "event_type": "entry_event", "n": 1},
    {"session_key": "k", "event_type": "entry_event", "n": "two"},
    {"session_key": "k", "event_type": "end_event"},
]


def assembled() -> Session:
    """As the job gives it to the transform."""
    records = [Record(0, offset, 0, None, orjson.dumps(value)) for offset, value in enumerate(VALUES)]
    settings = AssemblySettings()
    closed = assemble(OpenState.empty(), table(records, settings), settings).closed
    return to_session(closed[0], "in", 2)


def by_hand() -> Session:
    """As a test of a transform makes one."""
    events = [Event.of(value["event_type"], value, 0, offset) for offset, value in enumerate(VALUES)]
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    return Session("k", events, noon, noon, Position("in", 2, 0), Position("in", 2, 3))


@dataclass
class Numbered:
    n: int


def test_an_assembled_event_knows_where_it_is() -> None:
    session = assembled()
    with pytest.raises(
        EventError, match=r"entry_event at in/2 offset 2 is no Numbered: n: .* \(it is 'two'\)"
    ):
        cast(Event, session.last("entry_event")).as_(Numbered)
    assert copy.deepcopy(session.events[1]).as_(Numbered) == Numbered(1)
    assert pickle.loads(pickle.dumps(session.events[1])) == session.events[1]
    assert session.events[1] == Event("entry_event", session.events[1].raw, session.events[1].timestamp, 1)


@pytest.mark.parametrize("make", [assembled, by_hand])
def test_a_session_gives_its_events_by_type(make: Callable[[], Session]) -> None:
    of = make()
    assert [event.offset for event in of.of("entry_event")] == [1, 2]
    first, last = of.first("entry_event"), of.last("entry_event")
    assert first is not None
    assert last is not None
    assert (first.offset, last.offset) == (1, 2)
    assert of.first("other") is of.last("other") is None
    assert of.of("other") == []
