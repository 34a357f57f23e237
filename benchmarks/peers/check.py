"""Whether a contender does its work: all outputs of a preloaded topic, each once, with and without kills in the middle."""

import time
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

from benchmarks.peers.contender import Contender, RunningContender, Work
from benchmarks.peers.outputs import Judgement, TopicReader, Verdict, session_ends
from benchmarks.pipeline.traffic import BROKER_STAMPS, preload
from benchmarks.support.report import screen
from benchmarks.support.servers import Servers
from devstack.topics import create_topics
from examples.clickstream.generator import Shape, generate_blocks

_LONGEST_S = 600.0
_SHOW_EVERY_S = 10.0


class Checked(NamedTuple):
    """What a check saw."""

    verdict: Verdict
    seconds: float
    """From the start of the processes until a read_committed consumer had all outputs."""
    warm_seconds: float
    """Of it those from the moment it had a third of them."""
    work: Work


def check(
    servers: Servers, contender: Contender, *, sessions: int, partitions: int = 4, kills: int = 0
) -> Checked:
    """Preload, run, and compare what a read_committed consumer sees. `kills`: of each part in turn, spread over the run."""
    work = prepared(servers, sessions, partitions)
    ends = session_ends(servers.bootstrap_servers, work.input_topic)
    judgement = Judgement(ends)
    with TopicReader(servers.bootstrap_servers, work.output_topic) as reader:
        began = time.monotonic()
        with contender.running(work) as running:
            for number in range(1, kills + 1):
                _read_until(reader, judgement, len(ends) * number // (kills + 1), running)
                for part in running.pids():
                    screen.print(f"  {judgement.sessions:,} sessions received: kill -9 of {part}")
                    running.kill(part)
                    running.start(part)
            _read_until(reader, judgement, len(ends) // 3, running)
            third = time.monotonic()
            _read_until(reader, judgement, len(ends), running)
            ended = time.monotonic()
        # What comes after the last expected one counts too.
        for key, value in reader.to_the_end():
            judgement.add(key, value)
    return Checked(judgement.verdict(), ended - began, ended - third, work)


def prepared(servers: Servers, sessions: int, partitions: int) -> Work:
    """Make topics and a folder of their own, and fill the input."""
    name = uuid4().hex[:8]
    folder = Path(servers.folder) / f"peer-{name}"
    folder.mkdir()
    work = Work(servers.bootstrap_servers, f"bench.in.{name}", f"bench.out.{name}", folder)
    create_topics(
        servers.bootstrap_servers,
        {work.input_topic: (partitions, BROKER_STAMPS), work.output_topic: (partitions, {})},
    )
    shape = Shape(sessions, sessions_per_second=2_000, start_ms=int(time.time() * 1000))
    events = preload(servers.bootstrap_servers, work.input_topic, generate_blocks(shape))
    screen.print(f"preloaded {events:,} events")
    return work


def _read_until(reader: TopicReader, judgement: Judgement, sessions: int, running: RunningContender) -> None:
    deadline = time.monotonic() + _LONGEST_S
    shown = time.monotonic()
    while judgement.sessions < sessions:
        running.check_alive()
        for message in reader.poll(0.2):
            judgement.add(None if message.headers() else message.key(), message.value())
        if time.monotonic() > shown + _SHOW_EVERY_S:
            shown = time.monotonic()
            screen.print(f"  {judgement.sessions:,} sessions received")
        if time.monotonic() > deadline:
            raise RuntimeError(f"not within {_LONGEST_S:g} s: {judgement.verdict()}")
