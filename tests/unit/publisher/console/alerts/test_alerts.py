"""The console's conditions are those of the shipped alerts, and its runbook is the document."""

import re
from typing import Any

import pytest

from publisher.console.alerts import findings as conditions
from publisher.console.alerts.findings import NOT_SEEN, SEEN_IN_PART, findings, not_observable
from publisher.console.alerts.observed import DEAD_LETTERS_S, RESTARTS_S, Observed
from publisher.console.alerts.page import POSTGRES_UNREACHABLE, states, without_postgres
from publisher.console.alerts.runbook import sections
from publisher.status.publisher_status import LaneStatus
from tests.support.monitoring.prometheus import alerts
from tests.support.paths import ROOT

RULES = {rule["alert"]: rule["expr"] for rule in alerts()}
WORKS = {"host": "h", "pid": 1, "detail": None}
SERVICES = [WORKS | {"service": name, "state": "running"} for name in ("publisher", "spark-job")]


def lane(**changes: Any) -> LaneStatus:
    values: dict[str, Any] = dict.fromkeys(LaneStatus.__dataclass_fields__) | {
        "epoch": 1,
        "lane": 0,
        "holder": "h:1",
        "lag_rows": 0,
        "waiting": False,
    }
    return LaneStatus(**values | changes)


def seen(**changes: Any) -> Observed:
    values: dict[str, Any] = {
        "lanes": [lane()],
        "services": SERVICES,
        "parked": {},
        "parked_topics": {},
        "letters": {},
        "interrupted_replays": [],
        "delivered_s_ago": 1.0,
        "failed_runs": 3,
        "end_to_delivered_s": 30.0,
        "largest_open": 0.8,
        "oldest_partition_s": 150.0,
        "keep_s": 100.0,
    }
    return Observed(**values | changes)


HOLD: dict[str, dict[str, Any]] = {
    "OutboxJobDown": {"services": SERVICES[:1]},
    "OutboxNotReady": {"not_ready": ["lane 0 is retrying"]},
    "OutboxRestarts": {"failed_runs": 4},
    "OutboxHeldBack": {"services": [SERVICES[0], SERVICES[1] | {"detail": "held back: 501 events"}]},
    "OutboxOpenNearLimit": {"largest_open": 0.81},
    "OutboxDeadLetters": {"new_letters": {"malformed": 1}},
    "OutboxPublisherDown": {"services": SERVICES[1:]},
    "OutboxLaneAbandoned": {"lanes": [lane(holder=None, lag_rows=1)]},
    "OutboxLaneStopped": {"lanes": [lane(stopped_reason="kafka_lost: …", stopped_why="kafka_lost")]},
    "OutboxOpenTransaction": {"lanes": [lane(stopped_reason="…", stopped_why="open_transaction")]},
    "OutboxLaneFails": {"lanes": [lane(stopped_reason="retrying: no broker")]},
    "OutboxProgressUnread": {
        "lanes": [lane(lag_rows=1, oldest_undelivered_s=301.0)],
        "delivered_s_ago": 301.0,
    },
    "OutboxLags": {"lanes": [lane(lag_rows=1, oldest_undelivered_s=301.0)]},
    "OutboxLate": {"end_to_delivered_s": 30.1},
    "OutboxRowsParked": {"parked": {"too_large": 1}},
    "OutboxRetentionBlocked": {"oldest_partition_s": 151.0},
}
"""Alert -> what makes its condition hold."""


def test_nothing_is_said_at_the_thresholds() -> None:
    assert findings(seen()) == []


@pytest.mark.parametrize("alert", HOLD)
def test_the_condition_of_the_alert_is_named_as_the_alert(alert: str) -> None:
    assert alert in {each.alert for each in findings(seen(**HOLD[alert]))}


def test_every_shipped_alert_has_a_condition_or_a_reason_why_it_is_not_seen() -> None:
    assert HOLD.keys() | NOT_SEEN.keys() | {POSTGRES_UNREACHABLE} == RULES.keys()
    assert not HOLD.keys() & NOT_SEEN.keys()
    assert SEEN_IN_PART.keys() < HOLD.keys()


def test_what_a_look_has_no_figure_of_is_not_said_to_be_well() -> None:
    assert not_observable(seen(new_letters={})) == NOT_SEEN
    blind = seen(
        services=None,
        failed_runs=None,
        new_letters=None,
        end_to_delivered_s=None,
        largest_open=None,
        keep_s=None,
    )
    unknown = {
        each.section.alert
        for each in states(findings(blind), not_observable(blind))
        if each.state == "not seen here"
    }
    assert unknown - NOT_SEEN.keys() == {
        "OutboxJobDown",
        "OutboxPublisherDown",
        "OutboxHeldBack",
        "OutboxRestarts",
        "OutboxOpenNearLimit",
        "OutboxDeadLetters",
        "OutboxLate",
        "OutboxRetentionBlocked",
    }


@pytest.mark.parametrize(
    ("alert", "part"),
    [
        ("OutboxLags", f"> {conditions.LAGS_S}"),
        ("OutboxLate", f"> {conditions.LATE_S}"),
        ("OutboxProgressUnread", f"[{conditions.PROGRESS_UNREAD_S // 60}m]"),
        ("OutboxOpenNearLimit", f"> {conditions.NEAR_LIMIT}"),
        ("OutboxRestarts", f"[{RESTARTS_S // 60}m])) > {conditions.RESTARTS}"),
        ("OutboxRetentionBlocked", f"> {conditions.RETENTION_FACTOR} *"),
        ("OutboxDeadLetters", f"[{DEAD_LETTERS_S // 60}m])) > 0"),
    ],
)
def test_the_thresholds_are_those_of_the_rules(alert: str, part: str) -> None:
    assert part in RULES[alert]


def test_the_page_has_every_alert_and_those_that_hold_first() -> None:
    found = findings(seen(parked={"invalid": 2}, failed_runs=9))
    listed = states(found, NOT_SEEN)
    assert {each.section.alert for each in listed} == RULES.keys()
    assert [(each.section.alert, each.state) for each in listed[:3]] == [
        ("OutboxRestarts", "holds"),
        ("OutboxRowsParked", "holds"),
        ("OutboxJobDown", "does not hold"),
    ]
    assert {each.section.alert: each.said for each in listed}[
        "OutboxRowsParked"
    ] == "2 rows are parked: invalid"


def test_without_postgres_the_page_says_that_and_claims_nothing_else() -> None:
    listed = without_postgres("Postgres does not answer: refused.")["alerts"]
    assert (listed[0].section.alert, listed[0].state) == (POSTGRES_UNREACHABLE, "holds")
    assert {each.state for each in listed[1:]} == {"not seen here"}


def test_the_runbook_of_the_console_is_the_document() -> None:
    """`make docs` copies it."""
    copy = ROOT / "publisher/console/alerts/runbook.txt"
    assert copy.read_bytes() == (ROOT / "docs/runbook.md").read_bytes()


def test_nothing_of_the_runbook_is_left_as_markup() -> None:
    for section in sections():
        assert [part.kind for part in section.parts if part.kind != "text"]
        for part in section.parts:
            assert "```" not in part.code
            assert all(not re.search(r"[`\[\]*]", span.text) for span in part.spans if span.kind == "text")
            assert all(
                span.to.upper() in (name.upper() for name in RULES)
                for span in part.spans
                if span.kind == "alert"
            )
            assert all((ROOT / span.to).is_file() for span in part.spans if span.kind == "page")
