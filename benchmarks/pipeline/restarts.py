"""How long the outputs stay away when the job is killed with sessions open that began half an hour ago."""

import shutil
import time
from collections.abc import Mapping
from itertools import islice
from uuid import uuid4

from benchmarks.pipeline.checkout import Checkout
from benchmarks.pipeline.idle import OUTPUT_PARTITIONS
from benchmarks.pipeline.services import Services, running
from benchmarks.pipeline.traffic import Watcher, preload, send, wait_for, without_ends
from benchmarks.support.report import Measured
from benchmarks.support.servers import Servers
from benchmarks.transforms import TOPIC
from devstack.topics import create_topics
from examples.clickstream.events import Record
from examples.clickstream.generator import Shape

HELD = {
    "open_events": "events of open sessions",
    "to_read": "offsets that a rebuild would read",
    "cached_s": "kill -9 to the first new output, cache found, s",
    "cached_events": "events read again",
    "rebuilt_s": "kill -9 to the first new output, cache deleted, s",
    "rebuilt_events": "events read again",
}
_FIRST_S = 600.0
_READ_S = 600.0
_HELD_TIMEOUT_S = 7_200
_ENDED = 100


def measure_held(
    servers: Servers,
    checkout: Checkout,
    settings: Mapping[str, str],
    *,
    sessions: int,
    events: int,
    span_s: int,
    partitions: int,
) -> Measured:
    """Open sessions over `span_s` of event time, end none, and kill the job: once with its cache, once without."""
    topic = f"bench.held.{uuid4().hex[:8]}"
    create_topics(servers.bootstrap_servers, {topic: (partitions, {}), TOPIC: (OUTPUT_PARTITIONS, {})})
    shape = Shape(
        sessions,
        sessions_per_second=sessions / span_s,
        entries=events - 1,
        start_ms=int(time.time() - span_s) * 1000,
        key_prefix=f"{topic}-",
    )
    ends: list[Record] = []
    count = preload(servers.bootstrap_servers, topic, without_ends(shape, ends))
    settings = {**settings, "SESSION__TIMEOUT_S": str(_HELD_TIMEOUT_S)}
    with (
        Watcher(servers.bootstrap_servers, OUTPUT_PARTITIONS) as watcher,
        running(servers, checkout, topic, settings) as services,
    ):
        services.wait_until_read(count, _READ_S)
        left = iter(ends)
        cached = _kill(servers, services, watcher, topic, list(islice(left, _ENDED)), keep_cache=True)
        rebuilt = _kill(servers, services, watcher, topic, list(islice(left, _ENDED)), keep_cache=False)
    return {
        "open_events": count,
        "to_read": cached["to_read"],
        "cached_s": cached["first_output_s"],
        "cached_events": cached["events"],
        "rebuilt_s": rebuilt["first_output_s"],
        "rebuilt_events": rebuilt["events"],
    }


def _kill(
    servers: Servers,
    services: Services,
    watcher: Watcher,
    topic: str,
    ends: list[Record],
    *,
    keep_cache: bool,
) -> Measured:
    log = services.log_size()
    moment = services.kill_job()
    if not keep_cache:
        shutil.rmtree(services.folder / "cache")
    services.start("spark_job")
    send(servers.bootstrap_servers, topic, ends)
    keys = {key for key, _, _ in ends}
    wait_for(lambda: keys <= watcher.received.keys(), "the outputs", _FIRST_S, services.check_alive)
    first = min(watcher.received[key] for key in keys)
    started = services.logged("job_rebuilds", log)[-1]
    return {
        "first_output_s": first - moment,
        "to_read": started["rebuild_offsets"],
        "events": sum(line["events"] for line in services.logged("open_sessions_rebuilt", log)),
    }
