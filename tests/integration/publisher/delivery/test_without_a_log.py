"""A log that takes no line, and a terminal that is gone, stop no delivery and no end in order."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from service.settings import Settings
from tests.support.outbox.batches import Outbox, simple
from tests.support.outbox.deliveries import assert_exactly_once, drained
from tests.support.processes.environment import variables_of, without_settings
from tests.support.waiting import LONG_DEADLINE_S, wait_until
from tests.support.watching import Watcher

BATCHES = 3


@contextmanager
def output(kind: str) -> Iterator[int]:
    """A descriptor that takes nothing, or nothing for long."""
    if kind == "full disk":
        with open("/dev/full", "wb") as full:
            yield full.fileno()
        return
    reading, writing = os.pipe()
    try:
        if kind == "closed pipe":
            os.close(reading)
        else:
            os.set_blocking(writing, False)
            while True:
                try:
                    os.write(writing, b"x" * 4096)
                except BlockingIOError:
                    break
            os.set_blocking(writing, True)
        yield writing
    finally:
        os.close(writing)
        if kind != "closed pipe":
            os.close(reading)


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize("kind", ["full disk", "closed pipe", "unread pipe", "none"])
def test_it_delivers_and_ends_in_order(
    outbox: Outbox, settings: Settings, watcher: Watcher, kind: str, form: str
) -> None:
    environment = without_settings() | variables_of(settings) | {"OUTBOX_LOG__FORMAT": form}
    command = [sys.executable, "-m", "publisher", "run"]
    with output("full disk" if kind == "none" else kind) as descriptor:
        if kind == "none":
            command = ["/bin/sh", "-c", 'exec "$@" >&- 2>&-', "sh", *command]
        process = subprocess.Popen(command, env=environment, stdout=descriptor, stderr=descriptor)
        try:
            for number in range(1, BATCHES + 1):
                outbox.batch(simple(number, keys=20))
                wait_until(
                    lambda: process.poll() is not None or drained(outbox.dsn),
                    f"delivery {number}",
                    LONG_DEADLINE_S,
                )
                assert process.poll() is None
            process.send_signal(signal.SIGTERM)
            assert process.wait(LONG_DEADLINE_S) == 0
        finally:
            process.kill()
            process.wait()
    assert_exactly_once(outbox, watcher)
