"""A replay that cannot reach its target yet keeps to what people have asked for meanwhile, and says what is wrong."""

import threading
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest

from db.errors import UnavailableError
from db.settings import PostgresSettings, PublisherSettings, Settings
from publisher.checks import LaneStoppedError
from publisher.checks import Why as LaneWhy
from publisher.cursor import Cursor
from publisher.replay import runner, session
from publisher.replay.errors import ReplayStoppedError
from publisher.replay.runner import End, Runner
from publisher.replay.store import ReplayLease
from publisher.replay.target import Target


def test_a_pause_is_not_undone_by_a_go_on_that_still_waits_for_kafka(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []

    def claim(*_: Any, paused_too: bool) -> Any:
        """The replay is paused again after the first claim."""
        asked.append(paused_too)
        return SimpleNamespace(seq=0, cursor=Cursor(0)) if paused_too or len(asked) == 1 else None

    def unreachable(*_: Any) -> None:
        if len(asked) > 5:
            pytest.fail("it was claimed again and again, though it is paused")
        raise UnavailableError("Kafka is away")

    class Nothing:
        """A stand-in for the connection and the admission."""

        batch_bytes = None

        def close(self) -> None: ...
        def begin(self) -> None: ...

    monkeypatch.setattr(ReplayLease, "claim", claim)
    monkeypatch.setattr(session, "connect", lambda *_, **__: Nothing())
    monkeypatch.setattr(session, "check_unchanged", lambda *_: None)
    monkeypatch.setattr(session, "load", lambda *_: SimpleNamespace(state="paused", lease_holder=None))
    monkeypatch.setattr(runner, "ReplayAdmission", lambda *_, **__: Nothing())
    replay: Any = SimpleNamespace(
        replay_id=1, replay_uuid=uuid4(), target_cluster_id="c", events_per_second=None
    )
    settings = Settings.model_construct(
        postgres=PostgresSettings.model_construct(), publisher=PublisherSettings()
    )
    target: Any = SimpleNamespace(check_cluster=unreachable)
    outbox: Any = None
    ended = Runner(settings, outbox, replay, target, threading.Event(), holder="me", paused_too=True).run()
    assert ended is End.CHANGED
    assert asked == [True, False]


@pytest.mark.parametrize(
    ("why", "raised", "words"),
    [
        (LaneWhy.OUTPUT_TOPIC_UNWRITABLE, UnavailableError, "only 1 replica"),
        (LaneWhy.OUTPUT_TOPIC_MISSING, ReplayStoppedError, "--create-topics"),
    ],
)
def test_a_topic_that_takes_nothing_for_now_is_tried_again_and_not_called_missing(
    why: LaneWhy, raised: type[Exception], words: str
) -> None:
    def describe(*_: Any, **__: Any) -> None:
        raise LaneStoppedError(why, "only 1 replica", retry=True)

    target: Any = Target.__new__(Target)
    target.kafka = SimpleNamespace(bootstrap_servers="here:1")
    target._topics = SimpleNamespace(describe=describe)
    with pytest.raises(raised, match=words):
        target.describe(["t"])
