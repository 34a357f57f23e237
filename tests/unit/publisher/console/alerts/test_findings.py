"""What the console says needs a person."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from publisher.console.alerts.findings import findings
from publisher.console.alerts.observed import Observed
from publisher.status.publisher_status import LaneStatus

RUNNING = [
    {"service": name, "state": "running", "host": "h", "pid": 1, "detail": None}
    for name in ("publisher", "spark-job")
]


def lane(**changes: Any) -> LaneStatus:
    values: dict[str, Any] = {
        "epoch": 1,
        "lane": 3,
        "holder": "h:1",
        "seq": 1,
        "cursor_batch": 1,
        "cursor_key": None,
        "sessions": 1,
        "events": 1,
        "stopped_reason": None,
        "stopped_why": None,
        "last_delivery_at": None,
        "lag_batches": 0,
        "lag_rows": 0,
        "oldest_undelivered_s": None,
        "waiting": False,
    }
    return LaneStatus(**values | changes)


def said(**changes: Any) -> list[tuple[str, str]]:
    values: dict[str, Any] = {
        "lanes": [lane()],
        "services": RUNNING,
        "parked": {},
        "parked_topics": {},
        "letters": {},
        "interrupted_replays": [],
        "delivered_s_ago": 1.0,
    }
    return [(each.level, each.text) for each in findings(Observed(**values | changes))]


def test_nothing_is_said_of_what_works() -> None:
    assert said(parked={"invalid": 0}, letters={"malformed": 0}) == []


def test_what_stands_still_comes_first() -> None:
    found = said(
        lanes=[
            lane(holder=None, lag_rows=20_000),
            lane(lane=4, stopped_reason="kafka_lost: …", stopped_why="kafka_lost"),
        ],
        parked={"too_large": 2},
        letters={"malformed": 10_000},
        parked_topics={"t": datetime(2026, 1, 2, tzinfo=UTC)},
        interrupted_replays=[7],
    )
    assert found == [
        ("bad", "lane 3 of epoch 1: at least 20,000 rows wait and nobody delivers them"),
        ("bad", "lane 4 of epoch 1 is stopped: kafka_lost"),
        ("warning", "2 rows are parked: too_large"),
        ("warning", "rows for topic t are parked while it does not exist, decided 2026-01-02 00:00:00 UTC"),
        ("warning", "replay 7 was interrupted"),
        ("note", "open dead letters: at least 10,000 malformed"),
    ]


def test_a_lane_that_retries_is_not_called_stopped() -> None:
    retrying = lane(stopped_reason="retrying: no broker", lag_rows=1)
    assert said(lanes=[retrying]) == [("warning", "lane 3 of epoch 1 is retrying")]
    # What a process that has ended left there does not hide that nobody delivers.
    assert said(lanes=[replace(retrying, holder=None)]) == [
        ("bad", "lane 3 of epoch 1: 1 rows wait and nobody delivers them")
    ]


def test_lanes_that_retry_do_not_hide_that_none_begins_a_transaction() -> None:
    old = {"lag_rows": 1, "oldest_undelivered_s": 301.0}
    late = ("warning", "the oldest undelivered row is 301 s old")
    stopped = lane(stopped_reason="kafka_lost: …", stopped_why="kafka_lost", **old)
    assert said(lanes=[stopped], delivered_s_ago=301.0) == [
        ("bad", "lane 3 of epoch 1 is stopped: kafka_lost"),
        late,
    ]
    assert said(lanes=[lane(stopped_reason="retrying: no broker", **old)], delivered_s_ago=301.0) == [
        ("bad", "publishers hold lanes with work and begin no transaction"),
        ("warning", "lane 3 of epoch 1 is retrying"),
        late,
    ]


def test_a_service_that_was_killed_is_named_and_one_that_never_ran_too() -> None:
    gone = [RUNNING[1], RUNNING[0] | {"state": "gone", "pid": 77}]
    assert said(services=gone) == [("bad", "no publisher runs")]
    beside = [*RUNNING, RUNNING[0] | {"state": "gone", "pid": 77}]
    assert said(services=beside) == [("warning", "publisher h:77 ended without saying so")]
    withdrawn = [
        *RUNNING,
        RUNNING[0] | {"state": "withdrawn", "pid": 78, "detail": "takes no lanes: a lane hangs"},
    ]
    assert said(services=withdrawn) == [("warning", "publisher h:78 takes no lanes: a lane hangs")]
    held = [RUNNING[0], RUNNING[1] | {"detail": "held back: 3 batches"}]
    assert said(services=held) == [("warning", "spark-job is held back: 3 batches")]


def test_old_rows_readiness_and_missing_rights_are_said() -> None:
    assert said(lanes=[lane(lag_rows=1, oldest_undelivered_s=301.0)]) == [
        ("warning", "the oldest undelivered row is 301 s old")
    ]
    assert said(not_ready=["lane 3 is retrying"]) == [
        ("warning", "this publisher is not ready: lane 3 is retrying")
    ]
    assert said(services=None, letters=None)[0][0] == "note"
