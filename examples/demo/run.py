"""The demo on one screen: start everything, play the input, kill each service once, wait for the end."""

import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

from psycopg.conninfo import make_conninfo
from rich.console import Console

from db import migrate
from devstack.processes.port import LOOPBACK, ReservedPort
from devstack.stack import Stack
from devstack.topics import create_topics
from examples.clickstream.anomalies import Anomalies
from examples.clickstream.dataset import read_clicks
from examples.clickstream.events import from_clicks
from examples.clickstream.generator import Shape, generate
from examples.clickstream.reading import end_offsets
from examples.clickstream.topics import CLICKS, CONFIG, INPUT, LOAD, OUTPUT
from examples.demo.display import Display
from examples.demo.feed import Feed
from examples.demo.outbox import Outbox, Progress
from examples.demo.services import Service, clean_environment
from service.settings import KafkaSettings

DATABASE = "outbox"
AUDITOR = "auditor"
"""Login of a person who asks with SQL."""
SHAPE = {"sessions": 1_200, "sessions_per_second": 40.0}
ANOMALIES = Anomalies(
    duplicates=0.02, orphans=0.01, restarts=0.01, malformed=0.01, missing_ends=0.01, pageless=0.01
)
FEED_SECONDS = 25.0
EVENTS_PER_BATCH = 25_000
DEADLINE_S = 420.0
_POLL_S = 0.1
# An outbox with pending rows is a matter of milliseconds, so the moment for the kill has to be looked for closely.
_CLOSE_LOOK_S = 0.002


class DemoError(Exception):
    """The demo could not continue."""


class Demo:
    """Servers, services, feeds and the display. `close` stops and deletes everything."""

    def __init__(self, console: Console) -> None:
        """Nothing is started."""
        self.console = console
        self.display = Display(console)
        self.directory = Path()
        self.services: list[Service] = []
        self.feeds: list[Feed] = []
        self._cleanup = ExitStack()
        # Kept over the publisher's kills.
        self._console = ReservedPort()
        self._cleanup.callback(self._console.close)
        self._deadline = time.monotonic() + DEADLINE_S

    def start(self) -> None:
        """Real servers, the schema, the topics, both services. Raises DevstackError, OutboxError, DatasetError."""
        clicks = list(from_clicks(read_clicks()))
        self.directory = Path(tempfile.mkdtemp(prefix="spark-outbox-demo-"))
        self._cleanup.callback(shutil.rmtree, self.directory, ignore_errors=True)
        self.display.say("starting Postgres and Kafka (the first time ever their downloads, too)")
        self.stack = Stack.local(self.directory, fast=True)
        self._cleanup.callback(self.stack.destroy)
        self.stack.start()
        self.dsn = self.stack.create_database(DATABASE)
        migrate.upgrade(self.dsn)
        self.kafka = KafkaSettings(bootstrap_servers=self.stack.kafka.bootstrap_servers)
        create_topics(self.kafka.bootstrap_servers, INPUT | OUTPUT)
        self.outbox = Outbox(self.dsn)
        self._cleanup.callback(self.outbox.close)
        self.job, self.publisher = (self._service(name) for name in ("spark-job", "publisher"))
        self.display.say(f"starting spark-job and publisher on {self.kafka.bootstrap_servers}")
        self.job.start()
        self.publisher.start()
        self.display.say(f"the console is at {self.console_address()}")
        now_ms = int(datetime.now(UTC).timestamp() * 1000)
        load = list(generate(Shape(**SHAPE, start_ms=now_ms), ANOMALIES))  # type: ignore[arg-type] # counts and rates
        for topic, records in ((CLICKS, clicks), (LOAD, load)):
            feed = Feed(self.kafka, topic, records, FEED_SECONDS)
            self._cleanup.callback(feed.stop)
            self.feeds.append(feed)

    def play(self) -> None:
        """Feed the input, kill the job and the publisher while each has work in hand, wait until all is delivered."""
        self._wait("the job has started", self.outbox.has_generation)
        for feed in self.feeds:
            feed.start()
        self.display.say(f"playing {self.total:,} events into {CLICKS} and {LOAD}")
        self._wait(
            "a third of the input is committed", lambda: self._progress().input_events > self.total / 3
        )
        self._wait("the job has work in hand", self._is_job_busy, look_s=_CLOSE_LOOK_S)
        before, unprocessed = self._progress(), self._unprocessed()
        pid = self.job.kill()
        self.display.say(
            f"kill -9 spark-job (pid {pid}): {before.open_sessions:,} sessions open, {unprocessed:,} events not yet committed"
        )
        self.job.start()
        self._wait("the job commits again", lambda: self._progress().batches > before.batches)
        self._wait("rows wait in the outbox", lambda: self.outbox.pending() > 0, look_s=_CLOSE_LOOK_S)
        pid = self.publisher.kill()
        self.display.say(f"kill -9 publisher (pid {pid}): {self.outbox.pending():,} output events unsent")
        self.publisher.start()
        self._wait("the feeds are done", lambda: all(feed.is_done() for feed in self.feeds))
        ends = self._input_ends()
        self._wait("all input is dealt with", lambda: _covers(self.outbox.done(), ends))
        self._wait("all output is delivered", lambda: self.outbox.pending() == 0)
        self._show(self._progress())

    def stop_services(self) -> None:
        """SIGTERM to both, so that what they would still send is there before the verdict."""
        self.display.say("stopping both services (SIGTERM)")
        self.publisher.stop()
        self.job.stop()

    def go_on(self) -> None:
        """Start both services again, and make the login of an auditor: something to look at while the servers stay up."""
        self.publisher.start()
        self.job.start()
        self.outbox.add_auditor(AUDITOR)

    def auditor_dsn(self) -> str:
        """The outbox, for a login that may read everything and change nothing."""
        return make_conninfo(self.dsn, user=AUDITOR)

    def console_address(self) -> str:
        """Where the publisher serves the console."""
        return f"http://{LOOPBACK}:{self._console.number}/"

    def keep_logs(self) -> Path:
        """Copy the services' logs to a folder that stays."""
        folder = Path(tempfile.mkdtemp(prefix="spark-outbox-demo-logs-"))
        for service in self.services:
            if service.log.exists():
                shutil.copy(service.log, folder)
        return folder

    def close(self) -> None:
        """Stop the feeds, kill the services and the servers, delete the data."""
        self._cleanup.close()

    @property
    def total(self) -> int:
        """Input events that the feeds will have written."""
        return sum(feed.total for feed in self.feeds)

    def exports(self) -> Mapping[str, str]:
        """The settings that lead other commands to this stack."""
        return {
            "OUTBOX_POSTGRES__DSN": self.dsn,
            "OUTBOX_KAFKA__BOOTSTRAP_SERVERS": self.kafka.bootstrap_servers,
            "OUTBOX_JOB__CACHE": str(self.directory / "cache"),
        }

    def _service(self, name: str) -> Service:
        # Small batches, so that each kill finds some done and some not.
        settings = {**self.exports(), "OUTBOX_JOB__MAX_EVENTS_PER_BATCH": str(EVENTS_PER_BATCH)}
        # All values are made up, so they may be seen.
        settings |= {"OUTBOX_CONSOLE__PORT": str(self._console.number), "OUTBOX_CONSOLE__SHOW_VALUES": "true"}
        service = Service(name, self.directory / f"{name}.log", CONFIG, clean_environment(settings))
        self._cleanup.callback(service.kill_if_alive)
        self.services.append(service)
        return service

    def _wait(self, what: str, holds: Callable[[], bool], look_s: float = _POLL_S) -> None:
        """Look until it holds, drawing the progress. Raises DemoError when a service dies or time is up."""
        drawn = 0.0
        while not holds():
            for feed in self.feeds:
                feed.check()
            for service in self.services:
                if not service.is_alive():
                    raise DemoError(f"{service.name} ended by itself while waiting until {what}")
            if time.monotonic() > self._deadline:
                raise DemoError(
                    f"not within {DEADLINE_S:g} s: {what}. "
                    f"{self._written():,} of {self.total:,} events were written; then: {self._progress()}"
                )
            if time.monotonic() - drawn > _POLL_S:
                self._show(self._progress())
                drawn = time.monotonic()
            time.sleep(look_s)

    def _show(self, progress: Progress) -> None:
        kills = ", ".join(f"{service.name} {service.kills}" for service in self.services)
        self.display.show(self._written(), self.total, progress, kills)

    def _progress(self) -> Progress:
        return self.outbox.progress()

    def _written(self) -> int:
        return sum(feed.written for feed in self.feeds)

    def _is_job_busy(self) -> bool:
        return self._progress().open_sessions > 0 and self._unprocessed() > 0

    def _unprocessed(self) -> int:
        return self._written() - self._progress().input_events

    def _input_ends(self) -> dict[tuple[str, int], int]:
        return {
            (topic, partition): end
            for topic in INPUT
            for partition, end in end_offsets(self.kafka, topic).items()
        }


def _covers(done: dict[tuple[str, int], int], ends: dict[tuple[str, int], int]) -> bool:
    return all(done.get(where, 0) >= end for where, end in ends.items())
