"""Events per second when open sessions are found again in Kafka, by the code that a task runs for it (`spark_job.assembly.rebuild`).

    python -m benchmarks.rebuild [--events 1000000]

One partition, sessions of 102 events of 150 bytes. `usual`: all but the first close on the way, which is what a long session makes a
rebuild read. `all open`: none closes. One thread, librdkafka's own beside it; by the clock, and by CPU of all threads of the process.
"""

import time
from collections.abc import Iterator
from typing import Annotated

import typer

from benchmarks.pipeline.traffic import preload, without_ends
from benchmarks.support.report import Json, Measured, Page, Report
from benchmarks.support.servers import Servers, started_servers
from devstack.topics import create_topics
from examples.clickstream.events import Record
from examples.clickstream.generator import Shape, generate_blocks
from service.settings import KafkaSettings
from spark_job.assembly.rebuild import Rebuilt, rebuild
from spark_job.assembly.slices import Judge, Slice, TaskSettings, TransformOf
from spark_job.input.columns import RecordColumns
from spark_job.sessions.settings import AssemblySettings

LABELS = {
    "events_per_s": "events/s, by the clock",
    "events_per_cpu_s": "events/s of one core's CPU",
    "events": "events read",
    "open": "sessions found open",
}


def main(
    events: Annotated[int, typer.Option(min=10_000, help="Events that are read again.")] = 1_000_000,
    rounds: Annotated[int, typer.Option(min=1, help="Medians of so many.")] = 3,
    page: Page = None,
    json: Json = False,
) -> None:
    """Measure and print."""
    report = Report("rebuild", {}, LABELS, comparing=False)
    shape = Shape(events // 102, sessions_per_second=2_000, start_ms=int(time.time() * 1000))
    with started_servers() as here:
        for name, blocks in (("usual", _first_stays_open(shape)), ("all open", without_ends(shape, []))):
            topic = f"bench.{name.replace(' ', '-')}"
            create_topics(here.bootstrap_servers, {topic: (1, {})})
            end = preload(here.bootstrap_servers, topic, blocks)
            digest = _rebuild(here, topic, end, None).state.digest  # also the warm-up
            for _ in range(rounds):
                report.add(name, _measured(here, topic, end, digest))
    report.finish(page, as_json=json)


def _first_stays_open(shape: Shape) -> Iterator[list[Record]]:
    blocks = generate_blocks(shape)
    first = next(blocks)
    key = first[0][0]
    yield [record for record in first if record[0] != key or b'"end_event"' not in record[1]]
    yield from blocks


def _measured(here: Servers, topic: str, end: int, digest: str) -> Measured:
    cpu = time.process_time()
    found = _rebuild(here, topic, end, digest)
    cpu = time.process_time() - cpu
    return {
        "events_per_s": found.events / found.seconds,
        "events_per_cpu_s": found.events / cpu,
        "events": found.events,
        "open": len(found.state.sessions),
    }


def _rebuild(here: Servers, topic: str, end: int, digest: str | None) -> Rebuilt:
    kafka = KafkaSettings(bootstrap_servers=here.bootstrap_servers)
    judge = Judge(0, AssemblySettings(timeout_ms=3_600_000), RecordColumns())
    task = TaskSettings(
        outbox_uuid="bench",
        cache=str(here.folder / "cache"),
        transform=TransformOf("benchmarks.transforms:twenty", "", False, 1 << 26),
        code="",
        kafka=kafka.client(),
    )
    of = Slice(
        topic, "A" * 22, 0, start=end, end=end + 1, safe=0, digest=digest, tombstones=b"", judges=(judge,)
    )
    return rebuild(of, task)


if __name__ == "__main__":
    typer.run(main)
