"""A real Chromium, and a real outbox to look at.

$CHROMIUM names the browser, else `chromium`, `chromium-browser` or `google-chrome` on the path. `make test-console` brings axe.
"""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from devstack.kafka import KafkaServer
from devstack.topics import create_topics
from service.settings import Settings
from tests.support.outbox.batches import Outbox
from tests.support.paths import ROOT
from tests.support.processes.publishers import settings_for

AXE = ROOT / "build/axe/node_modules/axe-core/axe.min.js"
_NAMES = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Chromium without a window. That there is none is an error, never a skip."""
    path = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, _NAMES)), None)
    assert path, "there is no Chromium: apt-get install chromium, or set CHROMIUM=/path/to/it"
    with sync_playwright() as playwright:
        # Root cannot have Chromium's sandbox; what it opens is ours.
        found = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"] * (os.getuid() == 0))
        yield found
        found.close()


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    """A browser that has been nowhere yet."""
    found = browser.new_context(viewport={"width": 1_280, "height": 900})
    yield found
    found.close()


@pytest.fixture
def page(context: BrowserContext) -> Iterator[Page]:
    """A page on which nothing may go wrong: no error of a script, nothing refused by the policy."""
    found = context.new_page()
    wrong: list[str] = []
    found.on("pageerror", lambda error: wrong.append(str(error)))
    # A page that is not found, and a server that a test has ended, are told there, too.
    expected = ("404 (Not Found)", "ERR_")
    found.on(
        "console",
        lambda said: (
            wrong.append(said.text)
            if said.type == "error" and not any(each in said.text for each in expected)
            else None
        ),
    )
    yield found
    assert wrong == []


@pytest.fixture(scope="session")
def axe() -> str:
    """The source of axe-core."""
    assert AXE.is_file(), "axe is missing: make test-console brings it"
    return AXE.read_text("utf-8")


@pytest.fixture
def outbox(database: str, kafka: KafkaServer, topic_prefix: str) -> Outbox:
    """An empty outbox with two lanes."""
    topic = f"{topic_prefix}sessions"
    create_topics(kafka.bootstrap_servers, {topic: (3, {})})
    return Outbox(database, topic)


@pytest.fixture
def settings(outbox: Outbox, kafka: KafkaServer) -> Settings:
    """Settings of a publisher for that outbox."""
    return settings_for(outbox.dsn, kafka.bootstrap_servers)


@pytest.fixture
def images() -> Path:
    """Where the pictures of the documents are."""
    folder = ROOT / "docs" / "images"
    folder.mkdir(exist_ok=True)
    return folder
