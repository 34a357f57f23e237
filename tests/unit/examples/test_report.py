"""What a person sees at the demo's end: one session's records, as they are, from the input to the output."""

from typing import Any, cast

import pytest
from rich.console import Console

from examples.clickstream import show
from examples.clickstream.reading import KafkaRecord
from examples.clickstream.topics import CLICKS
from examples.clickstream.transform import FUNNEL, SESSIONS
from examples.demo.expected import Expected, Output
from examples.demo.outbox import Outbox
from examples.demo.report import Result, tell
from examples.demo.verdict import Finding, Verdict

PURCHASE = b'{"outcome":"purchase"}'


class FakeOutbox:
    """An outbox with one kind of dead letter."""

    def letter_table(self) -> list[tuple[Any, ...]]:
        return [("malformed", 13, 13, "not JSON")]


def test_a_session_is_followed_and_every_finding_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def rows(*_: object) -> list[tuple[Any, ...]]:
        return [(1, "T/0/7/0", 0, SESSIONS, PURCHASE.decode(), "delivered")]

    monkeypatch.setattr(show, "outbox_rows", rows)
    key = b"sess_1"
    inputs = [KafkaRecord(CLICKS, 0, 55, 0, key, b'{"event_type":"start_event"}', {})]
    sent = [KafkaRecord(FUNNEL, 0, 220, 0, key, b'{"fact":"stage"}', {"outbox-id": b"T/0/7/0"})]
    expected = Expected(1, [Output(SESSIONS, key, PURCHASE, "T/0/7/0")])
    verdict = Verdict(1, 1, 0, [Finding("missing", "T/0/7/1 of [sess_1]")])
    console = Console(width=120)
    tell(console, Result(inputs, sent, expected, verdict), cast(Outbox, FakeOutbox()), "")
    said = capsys.readouterr().out
    assert "$ python -m examples.clickstream.show --session-key sess_1 --outbox\n" in said
    assert f"{CLICKS}/0/55" in said
    assert '\n  {"event_type":"start_event"}\n' in said
    assert f"{FUNNEL}/0/220       T/0/7/0    0\n" in said
    assert "\nmissing: T/0/7/1 of [sess_1]\n" in said
    assert "Table(" not in said
