"""The example's transform, on sessions written out by hand."""

from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pytest

from examples.clickstream.transform import (
    CARTS,
    FUNNEL,
    OUTPUTS_PER_SESSION,
    PAGES,
    SESSIONS,
    TOPICS,
    transform,
)
from spark_job.api import Event, Position, Session

START = datetime(2024, 3, 13, 10, 0, tzinfo=UTC)
ABOUT = {"user": "user_1", "platform": "mobile", "channel": "email", "lifecycle": "new"}

Clicks = list[tuple[float, dict[str, Any]]]

PURCHASE: Clicks = [
    (0, {"page": "home"}),
    (10, {"page": "product_view"}),
    (40, {"page": "add_to_cart", "price_cents": 1_999}),
    (45, {"page": "cart"}),
    (60, {"page": "shipping_details"}),
    (90, {"page": "cart"}),
    (95, {"page": "shipping_details"}),
    (100, {"page": "payment_details"}),
    (120, {"page": "purchase"}),
]


def session(clicks: Clicks, lasts: float, key: str = "k") -> Session:
    def event(offset: int, kind: str, at: float, value: dict[str, Any]) -> Event:
        return Event.of(kind, value, START + timedelta(seconds=at), offset)

    events = [event(0, "start_event", 0, ABOUT)]
    events += [event(n, "entry_event", at, value) for n, (at, value) in enumerate(clicks, start=1)]
    events += [event(len(events), "end_event", lasts, {})]
    end = START + timedelta(seconds=lasts)
    return Session(key, events, START, end, Position("t", 0, 0), Position("t", 0, len(events) - 1))


def facts(of: Session) -> dict[str, dict[str, Any]]:
    """The facts by name; stages and dwells by `stage:NAME` and `dwell:GROUP`."""
    found = {}
    for output in transform(of):
        value = output.value
        assert isinstance(value, dict)
        name = value["fact"]
        detail = value.get("stage") or value.get("group")
        found[f"{name}:{detail}" if detail else name] = value
    return found


@pytest.mark.parametrize(
    "clicks", [[], [(0, {"page": "home"})], PURCHASE], ids=["empty", "bounce", "purchase"]
)
def test_every_session_makes_the_same_twenty_facts(clicks: Clicks) -> None:
    outputs = list(transform(session(clicks, 130, key="visitor")))
    assert len(outputs) == len(facts(session(clicks, 130))) == OUTPUTS_PER_SESSION
    assert [output.topic for output in outputs] == [SESSIONS] * 3 + [FUNNEL] * 6 + [PAGES] * 8 + [CARTS] * 3
    assert {output.topic for output in outputs} == set(TOPICS)
    assert all(output.key is None for output in outputs)
    assert all(isinstance(o.value, dict) and o.value["session"] == "visitor" for o in outputs)


def test_the_session_fact_says_who_came_and_how_long() -> None:
    assert facts(session(PURCHASE, 130.5))["session"] == {
        "fact": "session",
        "session": "k",
        **ABOUT,
        "started_at": "2024-03-13T10:00:00+00:00",
        "duration_s": 130.5,
        "clicks": 9,
        "distinct_pages": 7,
    }


@pytest.mark.parametrize(
    ("pages", "outcome"),
    [
        (["home"], "bounce"),
        ([], "bounce"),
        (["home", "catalog"], "browse"),
        (["catalog", "add_to_cart"], "abandoned_cart"),
        (["add_to_cart", "shipping_details"], "abandoned_checkout"),
        (["payment_details", "purchase", "home"], "purchase"),
    ],
)
def test_the_outcome_is_the_farthest_the_visitor_got(pages: list[str], outcome: str) -> None:
    clicks: Clicks = [(float(n), {"page": page}) for n, page in enumerate(pages)]
    found = facts(session(clicks, 60))["outcome"]
    assert found["outcome"] == outcome
    assert found["exit_page"] == (pages[-1] if pages else None)


def test_the_funnel_gives_the_time_to_each_stage_and_what_was_not_reached() -> None:
    found = facts(session(PURCHASE[:6], 130))
    stages = {
        name: (f["reached"], f["visits"], f["seconds_from_start"], f["seconds_from_previous"])
        for name, f in found.items()
        if f["fact"] == "stage"
    }
    assert stages == {
        "stage:landing": (True, 1, 0.0, 0.0),
        "stage:product": (True, 1, 10.0, 10.0),
        "stage:cart": (True, 3, 40.0, 30.0),
        "stage:shipping": (True, 1, 60.0, 20.0),
        "stage:payment": (False, 0, None, None),
        "stage:purchase": (False, 0, None, None),
    }


def test_dwell_times_add_up_to_the_session() -> None:
    found = facts(session(PURCHASE, 130))
    dwell = {name: (f["views"], f["seconds"]) for name, f in found.items() if f["fact"] == "dwell"}
    assert dwell["dwell:landing"] == (1, 10.0)
    assert dwell["dwell:product"] == (1, 30.0)
    assert dwell["dwell:checkout"] == (7, 90.0)
    assert sum(seconds for _, seconds in dwell.values()) == 130
    assert found["dwell:checkout"]["share"] == 0.6923


def test_a_clock_that_jumps_back_makes_no_negative_dwell() -> None:
    found = facts(session([(10, {"page": "home"}), (4, {"page": "catalog"})], 12))
    assert found["dwell:landing"]["seconds"] == 0
    assert found["dwell:browse"]["seconds"] == 8


def test_path_and_transitions_follow_the_clicks() -> None:
    pages = ["home", "catalog", "catalog", "home", "catalog"]
    clicks: Clicks = [(float(n), {"page": page}) for n, page in enumerate(pages)]
    found = facts(session(clicks, 9))
    assert found["path"]["path"] == ["home", "catalog", "home", "catalog"]
    assert found["path"]["steps"] == 4
    assert found["transitions"]["distinct"] == 3
    assert found["transitions"]["top"] == [
        ["home", "catalog", 2],
        ["catalog", "catalog", 1],
        ["catalog", "home", 1],
    ]


def test_cart_interest_and_friction_count_what_happened() -> None:
    found = facts(session(PURCHASE, 130))
    assert found["cart"] == {
        "fact": "cart",
        "session": "k",
        "adds": 1,
        "views": 2,
        "value_cents": 1_999,
        "purchased": True,
        "abandoned": False,
    }
    assert found["interest"]["product_views"] == 1
    assert found["friction"]["checkout_loops"] == 1
    assert facts(session(PURCHASE[:1], 1))["cart"]["value_cents"] is None
    assert facts(session(PURCHASE[:3], 50))["cart"]["abandoned"] is True


def test_equal_sessions_make_equal_bytes() -> None:
    first, second = (
        [orjson.dumps(output.value) for output in transform(session(PURCHASE, 130))] for _ in range(2)
    )
    assert first == second


@pytest.mark.parametrize(("value", "error"), [({}, KeyError), ({"page": 7}, TypeError)])
def test_a_click_without_a_page_is_refused(value: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        list(transform(session([(0, value)], 1)))
