"""The consumers' part of a session's page: their database may be away or slow, and their texts may be anything."""

import itertools
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from outbox_consumer.reading import ConsumedAs
from publisher.console import consumers
from publisher.console.consumers import MOST_CONNECTIONS, Consumers
from publisher.console.rendering.html import Rendering
from publisher.console.rendering.schemas import ShownValue
from publisher.console.story import add_consumed
from publisher.trace.consumers import Consumption
from publisher.trace.outputs import Output
from service.errors import UnavailableError
from service.settings import ConsoleSettings

ID = "T/0/3/0"
OUTPUT = Output(1, ID, 0, "out", "delivered", None, None, "k", 0, 1, 1)


def of_file(folder: Path, dsn: str) -> Consumers:
    """The consumers of the database that a file names."""
    file = folder / "consumer.dsn"
    file.write_text(dsn, "utf-8")
    return Consumers(ConsoleSettings(consumer_dsn_file=file))


def story() -> dict[str, Any]:
    """A session with one output, as the page has it."""
    shown = OUTPUT._asdict() | {"positions": None, "consumed": [], "key": "", "headers": ""}
    shown["value"] = ShownValue("")
    empty: dict[str, Any] = {name: [] for name in ("sessions", "history", "letters", "parked", "replays")}
    return empty | {
        "key": "k",
        "next": None,
        "outputs": [shown],
        "found": [OUTPUT],
        "outputs_cut": False,
        "kafka": None,
    }


def page(found: dict[str, Any]) -> str:
    return Rendering(ConsoleSettings()).page("session.html", found, path="/session")


@contextmanager
def answering(monkeypatch: pytest.MonkeyPatch, *rows: ConsumedAs) -> Iterator[None]:
    """A database that has these rows of the output."""
    with monkeypatch.context() as patch:
        patch.setattr(consumers, "consumptions", lambda *_, **__: {ID: [Consumption(row, 9) for row in rows]})
        yield


def test_a_database_that_is_away_is_one_sentence_without_its_password(tmp_path: Path) -> None:
    found = story()
    add_consumed(
        of_file(tmp_path, "postgresql://reader:hush@127.0.0.1:1/billing?connect_timeout=2"), found, show=True
    )
    said = page(found)
    assert "Consumers: the consumer&#39;s database at 127.0.0.1:1/billing cannot be used: " in said
    assert "[postgres]" not in said
    assert "hush" not in said
    assert "\n" not in found["consumers"]


def test_a_file_that_is_gone_is_one_sentence(tmp_path: Path) -> None:
    found = story()
    asked = of_file(tmp_path, "postgresql://127.0.0.1:1/billing")
    (tmp_path / "consumer.dsn").unlink()
    add_consumed(asked, found, show=True)
    assert "consumer.dsn" in found["consumers"]
    assert "cannot be read" in page(found)


def test_the_texts_of_consumers_never_become_markup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = of_file(tmp_path, "postgresql://127.0.0.1:1/billing")
    rows = (
        ConsumedAs("<b>billing</b>", 0, "out", 0, 5, "2026-11-27 10:00:00+00"),
        ConsumedAs("other", 0, "out", 0, 5, "2026-11-27 10:00:00+00", set_aside="ValueError: <script> 4111"),
    )
    with answering(monkeypatch, *rows):
        found = story()
        add_consumed(asked, found, show=True)
        said = page(found)
        assert "consumer &lt;b&gt;billing&lt;/b&gt;: consumed at 2026-11-27 10:00:00+00" in said
        assert "ValueError: &lt;script&gt; 4111" in said
        hidden = story()
        add_consumed(asked, hidden, show=False)
        assert "set aside at 2026-11-27 10:00:00+00: ValueError: …, from" in page(hidden)
        assert "4111" not in page(hidden)
    with answering(monkeypatch):
        add_consumed(asked, found, show=False)
        assert "no consumer has it (yet)" in page(found)


def test_without_the_setting_the_page_says_nothing_of_consumers() -> None:
    found = story()
    add_consumed(Consumers(ConsoleSettings()), found, show=True)
    assert "onsumer" not in page(found)


def test_a_database_that_does_not_answer_has_at_most_two_of_the_consoles_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = of_file(tmp_path, "postgresql://127.0.0.1:1/billing")
    entered, answer, calls = threading.Semaphore(0), threading.Event(), itertools.count()

    def hang(*_: object, **__: object) -> dict[str, list[Consumption]]:
        entered.release()
        if next(calls) < MOST_CONNECTIONS:
            answer.wait()
        return {}

    monkeypatch.setattr(consumers, "consumptions", hang)
    monkeypatch.setattr(consumers, "_WAIT_S", 0)
    with ThreadPoolExecutor(MOST_CONNECTIONS) as pages:
        waiting = [pages.submit(asked.of, [ID]) for _ in range(MOST_CONNECTIONS)]
        try:
            for _ in waiting:
                entered.acquire()
            with pytest.raises(UnavailableError, match="still answers other pages"):
                asked.of([ID])
        finally:
            answer.set()
        assert [each.result() for each in waiting] == [{}, {}]
    assert asked.of([ID]) == {}
