"""The console as a person sees it: in a real Chromium, over real servers, a real publisher and `publisher console` beside it."""

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
import pytest
from playwright.sync_api import Browser, Page, expect

from publisher.console.pages import PAGES
from service.settings import Settings
from tests.support.console import Console, console_of
from tests.support.outbox.batches import TOPIC_ID, Outbox, Session, read_offsets, simple
from tests.support.outbox.deliveries import deliver, drained
from tests.support.processes.publishers import publisher_service
from tests.support.queries import query
from tests.support.waiting import wait_until

pytestmark = pytest.mark.browser

WIDTHS = (400, 1_600)
KEY = "user-0417"
SOON_MS = 15_000


def address(console: Console, path: str) -> str:
    return f"http://127.0.0.1:{console.port}{path}"


@contextmanager
def traffic(outbox: Outbox) -> Iterator[None]:
    """Two batches a second, until the block ends."""
    stop = threading.Event()

    def run() -> None:
        number = 100
        while not stop.wait(0.5):
            batch_id = outbox.batch(simple(number, keys=25, events=20))
            query(outbox.dsn, "UPDATE outbox.batch SET input_events = 2550 WHERE batch_id = %s", batch_id)
            query(
                outbox.dsn,
                "UPDATE outbox.session_output o SET session_ended_ms = ARRAY[(extract(epoch FROM b.created_at) * 1000)::bigint"
                " - 150 - abs(hashtext(o.session_key)) %% 200] FROM outbox.batch b"
                " WHERE b.batch_id = o.batch_id AND o.batch_id = %s",
                batch_id,
            )
            number += 1

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@contextmanager
def a_job(outbox: Outbox) -> Iterator[None]:
    """What a running job leaves in the outbox: a writer whose connection lives."""
    with psycopg.connect(outbox.dsn, autocommit=True) as connection:
        connection.execute(
            "UPDATE outbox.writer SET run_id = gen_random_uuid(), host = 'spark', pid = 7, backend_pid = pg_backend_pid(),"
            " heartbeat_at = now(), started_at = now()"
        )
        yield


@pytest.fixture
def told(outbox: Outbox, settings: Settings) -> Outbox:
    """An outbox with something for every page."""
    outbox.batch(simple(1, keys=30))
    outbox.batch({KEY: [Session([b'{"total": 250}', b'{"items": 2}'], 200_010)]})
    outbox.batch(simple(3, keys=60))
    deliver(settings)
    read_offsets(outbox.dsn)
    query(
        outbox.dsn,
        "UPDATE outbox.session_output o SET session_ended_ms = ARRAY[(extract(epoch FROM b.created_at) * 1000 - 240)::bigint],"
        " session_started_ms = ARRAY[(extract(epoch FROM b.created_at) * 1000 - 2100)::bigint]"
        " FROM outbox.batch b WHERE b.batch_id = o.batch_id",
    )
    for reason, key, detail in (
        ("transform_failed", "user-0418", "Traceback\nKeyError: 'page'\n"),
        ("no_start", "user-0419", "'entry_event' without an open session of its key"),
        ("malformed", None, "not JSON: unexpected end of data: line 1 column 108 (char 107)"),
    ):
        query(
            outbox.dsn,
            "INSERT INTO outbox.dead_letter (topic_id, topic, partition, first_offset, last_offset, closing_offset, reason, generation,"
            " batch_id, session_key, detail, event_count, event_offsets, event_times_ms, event_values)"
            " VALUES (%s, 'session-events', 0, 250000, 250000, 250000, %s, 1, 2, %s, %s, 1, '{250000}', '{1}', %s)",
            TOPIC_ID,
            reason,
            key,
            detail,
            [b"{}"],
        )
    query(
        outbox.dsn,
        "INSERT INTO outbox.parked (session_key, batch_id, epoch, lane, lease_token, reason, detail)"
        " SELECT 'k0002', 3, 1, 0, 1, 'too_large', 'record of 1,200,000 bytes, the topic takes 1,048,588'",
    )
    return outbox


@pytest.fixture
def console(told: Outbox, settings: Settings) -> Iterator[Console]:
    with console_of(settings) as found:
        yield found


def every_page(console: Console) -> list[str]:
    """An address of each page, with something on it."""
    paths = {page.path: page.path for page in PAGES} | {
        "/batch": "/batch?id=3",
        "/letter": "/letter?id=1",
        "/session": f"/session?key={KEY}&kafka=1",
        "/search": f"/search?q={TOPIC_ID}/0/250000",
    }
    return [*paths.values(), "/session?key=nobody"]


def shown_rate(page: Page, name: str) -> float:
    return float(page.locator(f'[data-rate="{name}"]').inner_text().replace(",", ""))


def test_rates_move_and_a_killed_publisher_shows_within_seconds(
    page: Page, outbox: Outbox, settings: Settings, tmp_path: Path
) -> None:
    with console_of(settings) as console, publisher_service(settings, tmp_path / "log") as publisher:
        page.goto(address(console, "/"))
        expect(page.locator("#live")).to_have_text("live")
        assert shown_rate(page, "outputs delivered") == 0
        with traffic(outbox):
            page.wait_for_function(
                """() => Number(document.querySelector('[data-rate="outputs delivered"]').innerText.replace(",", "")) > 100""",
                timeout=60_000,
            )
            expect(page.locator("#services")).to_contain_text("running")
            expect(page.locator("#latency")).to_contain_text("half within")
            publisher.kill()
            expect(page.locator("#findings")).to_contain_text("no publisher runs", timeout=SOON_MS)
            expect(page.locator("#findings")).to_contain_text("nobody delivers them", timeout=SOON_MS)
            publisher.start()
            expect(page.locator("#findings")).not_to_contain_text("no publisher runs", timeout=60_000)
        wait_until(lambda: drained(outbox.dsn), "the rest")


def test_a_console_that_ends_is_said_and_the_page_takes_up_again(
    page: Page, told: Outbox, settings: Settings
) -> None:
    with console_of(settings) as console:
        page.goto(address(console, "/lanes"))
        expect(page.locator("#live")).to_have_text("live")
    expect(page.locator("#live")).to_contain_text("does not answer", timeout=SOON_MS)
    with console_of(settings, port=console.port):
        expect(page.locator("#live")).to_have_text("live", timeout=SOON_MS)


def test_nothing_is_asked_while_the_page_is_hidden_or_paused(page: Page, console: Console) -> None:
    page.goto(address(console, "/"))
    expect(page.locator("#live")).to_have_text("live")
    page.get_by_role("button", name="Pause").click()
    expect(page.locator("#live")).to_have_text("paused")
    before = page.locator("#lag").inner_text()
    page.wait_for_timeout(2_500)
    assert page.locator("#lag").inner_text() == before
    page.get_by_role("button", name="Continue").click()
    expect(page.locator("#live")).to_have_text("live")
    page.evaluate(
        """() => { Object.defineProperty(document, "hidden", {value: true, configurable: true});
        document.dispatchEvent(new Event("visibilitychange")); }"""
    )
    before = page.locator("#lag").inner_text()
    page.wait_for_timeout(2_500)
    assert page.locator("#lag").inner_text() == before
    page.evaluate(
        """() => { Object.defineProperty(document, "hidden", {value: false, configurable: true});
        document.dispatchEvent(new Event("visibilitychange")); }"""
    )
    expect(page.locator("#lag")).not_to_have_text(before)


@pytest.mark.parametrize("asked", [KEY, f"{TOPIC_ID}/0/200010/1", "session-events/0/200010"])
def test_the_search_finds_a_session(page: Page, console: Console, asked: str) -> None:
    page.goto(address(console, "/"))
    page.get_by_label("Session").fill(asked)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text(f"Session {KEY}")
    assert page.url.endswith(f"/session?key={quote(KEY)}")
    page.get_by_role("link", name="Look in Kafka for the place of each").click()
    expect(page.locator("#kafka")).to_contain_text("read")
    assert re.search(r"sessions/\d/\d+", page.locator("main").inner_text())


def test_axe_finds_nothing_in_light_and_dark(browser: Browser, console: Console, axe: str) -> None:
    for scheme in ("light", "dark"):
        context = browser.new_context(color_scheme=scheme, bypass_csp=True)
        page = context.new_page()
        for path in every_page(console):
            page.goto(address(console, path))
            page.evaluate(axe)
            found: dict[str, Any] = page.evaluate("() => axe.run(document)")
            said = [
                (each["id"], [node["html"][:200] for node in each["nodes"]]) for each in found["violations"]
            ]
            assert said == [], (scheme, path)
        context.close()


@pytest.mark.parametrize("width", WIDTHS)
def test_no_page_scrolls_sideways(page: Page, console: Console, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    for path in every_page(console):
        page.goto(address(console, path))
        widest = page.evaluate("() => document.documentElement.scrollWidth")
        assert widest <= width, path


def test_the_keyboard_reaches_everything(page: Page, console: Console) -> None:
    page.goto(address(console, "/"))
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.get_by_role("link", name="Lanes", exact=True).focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Lanes")
    expect(page.locator("#live")).to_have_text("live")
    # What has the focus keeps it over an update.
    page.get_by_role("link", name="1/0").focus()
    page.wait_for_timeout(2_500)
    expect(page.get_by_role("link", name="1/0")).to_be_focused()


def test_without_javascript_every_page_is_there(browser: Browser, console: Console) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    for path in every_page(console):
        page.goto(address(console, path))
        expect(page.locator("h1")).to_be_visible()
    context.close()


def test_the_login_lets_in_who_has_the_token(page: Page, told: Outbox, settings: Settings) -> None:
    with console_of(settings, token="correct horse battery") as console:
        page.goto(address(console, "/lanes"))
        expect(page.get_by_role("heading", level=1)).to_have_text("Log in")
        page.get_by_label("Token").fill("correct horse battery")
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", level=1)).to_have_text("Flow")
        expect(page.locator("#live")).to_have_text("live")


def test_the_pictures_of_the_documents(
    browser: Browser, outbox: Outbox, told: Outbox, settings: Settings, images: Path, tmp_path: Path
) -> None:
    with (
        console_of(settings, show_values=True) as console,
        publisher_service(settings, tmp_path / "log"),
        a_job(outbox),
        traffic(outbox),
    ):
        context = browser.new_context(viewport={"width": 1_600, "height": 900})
        page = context.new_page()
        page.goto(address(console, "/"))
        expect(page.locator("#live")).to_have_text("live")
        page.wait_for_timeout(40_000)
        for name, path in (
            ("flow", None),
            ("lanes", "/lanes"),
            ("session", f"/session?key={KEY}&kafka=1"),
            ("letters", "/letters"),
        ):
            if path is not None:
                page.goto(address(console, path))
            page.wait_for_timeout(1_500)
            page.screenshot(path=images / f"console-{name}.png", full_page=True)
        context.close()
        narrow = browser.new_context(viewport={"width": 400, "height": 900}, color_scheme="dark")
        page = narrow.new_page()
        page.goto(address(console, "/"))
        page.wait_for_timeout(2_500)
        page.screenshot(path=images / "console-narrow.png")
        narrow.close()
    for name in ("flow", "lanes", "session", "letters", "narrow"):
        assert (images / f"console-{name}.png").stat().st_size > 5_000
