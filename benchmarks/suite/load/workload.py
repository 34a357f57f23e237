"""Topics for one run, what is in them, a contender on them, and whether each output is there exactly once afterwards."""

import base64
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from benchmarks.peers.contender import Contender, RunningContender, Work
from benchmarks.peers.outputs import Verdict, judge, session_ends
from benchmarks.suite.load import usage
from benchmarks.suite.load.senders import Sent
from benchmarks.suite.load.watcher import Watcher
from benchmarks.support.rounds import screen
from benchmarks.support.servers import Servers
from benchmarks.support.topic_reader import TopicReader
from benchmarks.transforms import TOPIC
from devstack.topics import create_topics
from examples.clickstream.events import Record
from examples.clickstream.generator import MEAN_S, Shape, generate_blocks
from examples.clickstream.producer import TopicWriter
from service.settings import KafkaSettings

OUTPUT_PARTITIONS = 4
ENTRIES = 100
EVENTS = ENTRIES + 2
OPEN_SESSIONS = 3_000
"""At a time in a preloaded topic, unless something else is asked for."""
_STAMPED_BY_THE_BROKER = {"message.timestamp.type": "LogAppendTime"}
"""A session's times are then those at which the broker got its events."""
_GONE_S = 60.0
_LARGEST_MADE = 1_000
"""Bytes of an event up to which the generator makes it: it keeps thousands of different ones."""
_VARIETY = 100_003
_BLOCK_BYTES = 16_000_000


@dataclass(frozen=True)
class Workload:
    """A topic with sessions."""

    topic: str
    sessions: int
    entries: int
    ends: Mapping[bytes, int]
    """{session key: time of its end event, milliseconds since 1970}"""

    @property
    def events(self) -> int:
        """In the topic."""
        return self.sessions * (self.entries + 2)


@dataclass
class Run:
    """A contender that runs, and who counts its outputs."""

    contender: RunningContender
    watcher: Watcher
    servers: Servers
    started_s: float
    """When its first process was started, seconds since 1970."""
    topic: str
    """Its input."""
    folder: Path
    """Its own."""
    ends: dict[bytes, int] = field(default_factory=dict)
    """Of the sessions that are sent meanwhile: {session key: time of its end event, milliseconds since 1970}"""

    def parts(self) -> Mapping[str, list[int]]:
        """Its processes and Kafka's."""
        _, kafka = self.servers.stack.local_servers
        own = {part: list(pids) for part, pids in self.contender.pids().items()}
        return own | {"kafka": [kafka.process.identity.pid]}

    def sent(self, sent: Sent) -> None:
        """These sessions were sent too."""
        self.ends |= {key: round(end.stamp_s * 1000) for key, end in sent.ends.items()}

    def wait_for_all(self, timeout_s: float) -> bool:
        """Wait until all that were sent meanwhile have come; return whether they have."""
        return self.wait_for(len(self.ends), timeout_s)

    def wait(self, seconds: float, is_enough: Callable[[], bool] = lambda: False) -> None:
        """Let it run, not so long where `is_enough` says so. Raises RuntimeError where something of it ends."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0 and not is_enough():
            self.contender.check_alive()
            time.sleep(min(0.5, left))

    def wait_for(self, sessions: int, timeout_s: float) -> bool:
        """Wait until so many sessions' last outputs have come; return whether they have. Raises RuntimeError where something ends."""
        deadline = time.monotonic() + timeout_s
        while self.watcher.sessions < sessions:
            self.contender.check_alive()
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True


@dataclass
class Bench:
    """Servers and what was preloaded on them."""

    servers: Servers
    loaded: dict[tuple[int, int, int, int, int], Workload] = field(default_factory=dict)

    def preloaded(
        self,
        sessions: int,
        partitions: int = 4,
        entries: int = ENTRIES,
        bytes_per_event: int = 150,
        open_sessions: int = OPEN_SESSIONS,
    ) -> Workload:
        """Return a topic with so many sessions, about `open_sessions` of them at a time, made once."""
        shape = (sessions, partitions, entries, bytes_per_event, open_sessions)
        if shape not in self.loaded:
            topic = self.input_topic(partitions)
            self.loaded[shape] = fill(self.servers, topic, sessions, entries, bytes_per_event, open_sessions)
        return self.loaded[shape]

    def input_topic(self, partitions: int) -> str:
        """Make an empty input topic; return its name."""
        topic = f"bench.in.{uuid4().hex[:8]}"
        create_topics(self.servers.bootstrap_servers, {topic: (partitions, _STAMPED_BY_THE_BROKER)})
        return topic

    @contextmanager
    def running(self, contender: Contender, topic: str) -> Iterator[Run]:
        """Start a contender on an input topic. The output topic is new, so that nothing of a run before is in it."""
        bootstrap = self.servers.bootstrap_servers
        renewed(bootstrap, TOPIC, OUTPUT_PARTITIONS)
        folder = self.servers.folder / f"run-{uuid4().hex[:8]}"
        folder.mkdir()
        with (
            Watcher(bootstrap, TOPIC, OUTPUT_PARTITIONS) as watcher,
            contender.running(Work(bootstrap, topic, TOPIC, folder)) as running,
        ):
            # What comes before is no part of it: a schema in a new database, a build.
            own = (pid for part, pids in running.pids().items() if part != "postgres" for pid in pids)
            started = min(map(usage.started_s, own))
            yield Run(running, watcher, self.servers, started, topic, folder)


def fill(
    servers: Servers,
    topic: str,
    sessions: int,
    entries: int,
    bytes_per_event: int,
    open_sessions: int,
) -> Workload:
    """Write sessions into a topic as fast as the broker takes them."""
    shape = Shape(
        sessions,
        sessions_per_second=open_sessions / MEAN_S,
        entries=entries,
        bytes_per_event=min(bytes_per_event, _LARGEST_MADE),
        start_ms=int(time.time() * 1000),
        key_prefix=f"p{uuid4().hex[:4]}-",
    )
    bootstrap = servers.bootstrap_servers
    blocks = generate_blocks(shape)
    if bytes_per_event > _LARGEST_MADE:
        blocks = _padded(blocks, bytes_per_event - _LARGEST_MADE)
    with TopicWriter(KafkaSettings(bootstrap_servers=bootstrap), topic, with_timestamps=True) as writer:
        for block in blocks:
            writer.write(block)
    work = Workload(topic, sessions, entries, session_ends(bootstrap, topic))
    screen.print(f"{topic}: {work.events:,} events of {sessions:,} sessions")
    return work


def _padded(blocks: Iterable[list[Record]], by: int) -> Iterator[list[Record]]:
    """Add a field of `by` bytes to each JSON, in small blocks. The bytes are random, so that compression finds little in them."""
    letters = base64.b64encode(random.Random(1).randbytes(2 * by + _VARIETY))
    at = 0
    for block in blocks:
        size = max(1, _BLOCK_BYTES // by)
        for first in range(0, len(block), size):
            made = []
            for key, value, at_ms in block[first : first + size]:
                at = (at + 997) % _VARIETY
                made.append((key, b'%b,"more":"%b"}' % (value[:-1], letters[at : at + by - 10]), at_ms))
            yield made


COMPLETENESS = {
    "missing": "outputs missing",
    "twice": "outputs twice",
    "strange": "records that are no output of these sessions",
}


def verdict_of(bootstrap_servers: str, ends: Mapping[bytes, int]) -> Verdict:
    """Read the output topic as a read_committed consumer, and compare it with what it should hold. Headers do not count."""
    with TopicReader(bootstrap_servers, TOPIC) as reader:
        return judge(ends, ((each.key(), each.value()) for each in reader.messages_to_the_end()))


def completeness(bootstrap_servers: str, ends: Mapping[bytes, int]) -> dict[str, float]:
    """The same as measures of a round."""
    verdict = verdict_of(bootstrap_servers, ends)
    if not verdict.is_exact:
        screen.print(f"  not exact: {verdict}", markup=False)
    return {"missing": verdict.missing, "twice": verdict.doubled, "strange": verdict.strange}


def renewed(bootstrap_servers: str, topic: str, partitions: int) -> None:
    """Delete a topic where there is one, and make it again, empty. Raises TimeoutError."""
    client = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 3})
    for future in client.delete_topics([topic]).values():
        try:
            future.result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise
    deadline = time.monotonic() + _GONE_S
    while topic in client.list_topics(timeout=_GONE_S).topics:
        if time.monotonic() > deadline:
            raise TimeoutError(f"topic {topic} is still there {_GONE_S:g} s after it was deleted")
        time.sleep(0.05)
    create_topics(bootstrap_servers, {topic: (partitions, {})})
