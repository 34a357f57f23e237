"""What commands print is what there is: settings and keys with brackets in them are text, not markup."""

from dataclasses import replace
from uuid import UUID

import pytest

from publisher.commands import run, status
from publisher.outbox.identity import OutboxIdentity
from publisher.protocol.epochs import Epoch
from publisher.protocol.replay_targets import ReplayTargets
from publisher.protocol.stop_reasons import StopReason
from publisher.replay.printing import count_table
from publisher.replay.selection import Count, TopicCount
from publisher.status.publisher_status import LaneStatus, PublisherStatus
from service.commands.output import console
from service.settings import Settings

REASON = (
    f"{StopReason.NOT_AUTHORISED}: Kafka refuses this publisher. "
    "Grant it the missing right, or correct [kafka.options]; [publisher] lanes"
)
KEY = "cart[red]/[/x]:smile:"
LANE = LaneStatus(
    epoch=1,
    lane=0,
    holder="vm",
    seq=3,
    cursor_batch=2,
    cursor_key=KEY,
    sessions=1,
    events=1,
    stopped_reason=REASON,
    stopped_why=StopReason.NOT_AUTHORISED,
    last_delivery_at=None,
    lag_batches=0,
    lag_rows=0,
    oldest_undelivered_s=None,
    waiting=False,
)


def printed(capsys: pytest.CaptureFixture[str]) -> str:
    """What came to stdout, without the lines that a table or a narrow terminal makes of it."""
    return " ".join(capsys.readouterr().out.replace("│", " ").split())


@pytest.mark.guarantee(123)
def test_the_reason_of_a_stopped_lane_keeps_the_settings_that_it_names(
    capsys: pytest.CaptureFixture[str],
) -> None:
    identity = OutboxIdentity(UUID(int=1), "cluster", "outbox", {}, 1, 1, 1, 1)
    status.print_status(
        console(),
        PublisherStatus(identity, [LANE], {}, [], rates=[], parked_rows={}, lanes_taken=0, replays={}),
    )
    said = printed(capsys)
    assert REASON in said
    assert KEY in said


def test_a_lane_that_retries_is_not_called_stopped_and_its_publisher_is_healthy(
    capsys: pytest.CaptureFixture[str],
) -> None:
    identity = OutboxIdentity(UUID(int=1), "cluster", "outbox", {}, 1, 1, 1, 1)
    retrying = replace(LANE, stopped_reason="retrying: Kafka: timed out", stopped_why=None)
    found = PublisherStatus(identity, [retrying], {}, [], rates=[], parked_rows={}, lanes_taken=0, replays={})
    status.print_status(console(), found)
    said = printed(capsys)
    assert "lane 0 retrying: Kafka: timed out" in said
    assert "stopped" not in said
    assert found.healthy


def test_a_table_keeps_names_with_brackets(capsys: pytest.CaptureFixture[str]) -> None:
    count_table(Count({KEY: TopicCount(1, 1, 1)}, 1, 1, 1, 1), ReplayTargets()).print(console())
    assert KEY in printed(capsys)


def test_a_broker_s_name_for_its_cluster_acts_on_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    identity = OutboxIdentity(UUID(int=1), "c\x1b]0;x\x07\u202e", "outbox", {}, 1, 1, 1, 1)
    run.print_start(Settings(), identity, Epoch(1, 1, 1))
    assert r"cluster c\x1b]0;x\x07\u202e at" in capsys.readouterr().out
