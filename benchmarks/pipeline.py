"""The whole path: a preloaded topic -> Spark -> Postgres -> publisher -> Kafka, then latency at a steady rate.

Run it alone on the machine. The baseline is a warm Spark scan of the same topic in the same run, which does nothing with what it reads.
"""

import json
import statistics
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from itertools import chain
from typing import Annotated, Any

import psycopg
import typer
from confluent_kafka import Consumer
from rich.console import Console

from benchmarks import transforms
from benchmarks.world import INPUT, World, world
from db.settings import KafkaSettings
from devstack.process import ServerProcess
from examples.clickstream.generator import Shape, generate_blocks
from examples.clickstream.producer import TopicWriter, paced

EVENTS_PER_SESSION = 102
_START_S = 20
_WARM_UP_S = 30
screen = Console(stderr=True)


@dataclass
class Timeline:
    """Sessions delivered over time, from the lanes' mirrors."""

    samples: list[tuple[float, int]] = field(default_factory=list)

    def rate(self, from_share: float, total: int) -> float:
        """Sessions a second between the moment `from_share` of them was delivered and the end."""
        begin = next(sample for sample in self.samples if sample[1] >= from_share * total)
        end = next(sample for sample in self.samples if sample[1] >= total)
        return (end[1] - begin[1]) / (end[0] - begin[0]) if end[0] > begin[0] else 0.0

    def seconds_to(self, total: int) -> float:
        """Seconds from the first sample until all were delivered."""
        return next(at for at, sessions in self.samples if sessions >= total) - self.samples[0][0]


def main(
    sessions: Annotated[int, typer.Option(min=1_000, help="Sessions of 102 events to preload.")] = 60_000,
    transform: Annotated[
        str, typer.Option(help="module:function; it must write to the topic given.")
    ] = "benchmarks.transforms:twenty",
    topics: Annotated[
        list[str] | None, typer.Option("--topic", help="Output topics of the transform.")
    ] = None,
    key: Annotated[
        str,
        typer.Option(help="Where the session key is: `key`, or `$.session_key`, which the JVM must parse."),
    ] = "key",
    max_events: Annotated[int, typer.Option(help="[job] max_events_per_batch.")] = 600_000,
    partitions: Annotated[int, typer.Option(help="Partitions of each topic.")] = 4,
    latency_rate: Annotated[
        float, typer.Option(help="Sessions a second of the latency part; 0: none.")
    ] = 100.0,
    latency_seconds: Annotated[int, typer.Option(help="How long the latency part lasts.")] = 40,
) -> None:
    """Measure throughput warm and whole, and latency from end event to a read_committed consumer."""
    outputs = topics or [transforms.TOPIC]
    settings = {
        "SOURCE__TOPICS": json.dumps([INPUT]),
        "SESSION__KEY": key,
        "TRANSFORM__FUNCTION": transform,
        "JOB__MAX_EVENTS_PER_BATCH": str(max_events),
        "JOB__TRIGGER_MS": "0",
        "LOG__FORMAT": "json",
    }
    result: dict[str, Any] = {
        "benchmark": "pipeline",
        "sessions": sessions,
        "transform": transform,
        "key": key,
        "max_events": max_events,
    }
    with world({INPUT: partitions} | dict.fromkeys(outputs, partitions)) as here:
        _preload(here, sessions)
        scan_s = float(
            subprocess.run(
                [sys.executable, "-m", "benchmarks.scan", here.bootstrap_servers, INPUT],
                capture_output=True,
                text=True,
                check=True,
            ).stdout.split()[-1]
        )
        screen.print(f"baseline: a warm scan of the topic takes {scan_s:.1f} s")
        timeline = _throughput(
            here, sessions, settings | {"JOB__CHECKPOINT": str(here.folder / "checkpoint")}
        )
        warm = timeline.rate(1 / 3, sessions)
        result |= {
            "sessions_per_s_warm": round(warm),
            "input_events_per_s_warm": round(warm * EVENTS_PER_SESSION),
            "sessions_per_s_whole": round(sessions / timeline.seconds_to(sessions)),
            "scan_events_per_s": round(sessions * EVENTS_PER_SESSION / scan_s),
            "ratio_to_scan": round(warm * scan_s / sessions, 3),
        }
    if latency_rate:
        with world({INPUT: partitions} | dict.fromkeys(outputs, partitions)) as here:
            result |= _latency(
                here,
                latency_rate,
                latency_seconds,
                settings
                | {
                    "JOB__CHECKPOINT": str(here.folder / "checkpoint"),
                    "TRANSFORM__FUNCTION": "benchmarks.transforms:twenty",
                },
            )
    print(json.dumps(result))


def _preload(here: World, sessions: int) -> None:
    began = time.monotonic()
    shape = Shape(sessions, sessions_per_second=2_000, start_ms=int(time.time() * 1000))
    with TopicWriter(
        KafkaSettings(bootstrap_servers=here.bootstrap_servers), INPUT, with_timestamps=True
    ) as writer:
        for block in generate_blocks(shape):
            writer.write(block)
    seconds = time.monotonic() - began
    screen.print(
        f"preloaded {sessions:,} sessions, {sessions * EVENTS_PER_SESSION:,} events in {seconds:.1f} s"
    )


def _throughput(here: World, sessions: int, settings: dict[str, str]) -> Timeline:
    timeline = Timeline()
    with (
        here.service("spark-job", settings) as job,
        here.service("publisher", {"LOG__FORMAT": "json"}) as publisher,
        psycopg.connect(here.dsn, autocommit=True) as connection,
    ):
        began = shown = time.monotonic()
        timeline.samples.append((began, 0))
        while timeline.samples[-1][1] < sessions:
            time.sleep(0.1)
            _check_alive(here, job, publisher)
            row = connection.execute(
                "SELECT coalesce(sum(events), 0)::bigint / %s FROM outbox.lane", [transforms.OUTPUTS]
            ).fetchone()
            assert row is not None
            timeline.samples.append((time.monotonic(), row[0]))
            if time.monotonic() - shown > 5:
                shown = time.monotonic()
                screen.print(f"  {shown - began:5.0f} s: {row[0]:,} sessions delivered")
            if time.monotonic() - began > 900:
                raise RuntimeError(
                    f"not done after 15 minutes:\n{here.log_tail('spark-job')}\n{here.log_tail('publisher')}"
                )
    return timeline


def _latency(here: World, rate: float, seconds: int, settings: dict[str, str]) -> dict[str, Any]:
    """Latency from an end event's timestamp to the arrival of the session's last output at a read_committed consumer."""
    latencies: list[tuple[float, float]] = []
    stop = threading.Event()
    watcher = threading.Thread(target=_watch, args=(here, latencies, stop))
    with (
        here.service("spark-job", settings | {"JOB__TRIGGER_MS": "100"}) as job,
        here.service("publisher", {"LOG__FORMAT": "json"}) as publisher,
    ):
        watcher.start()
        try:
            # The job's start and its backlog are not what is measured: the clock runs from a while after the first output.
            length = seconds + _START_S + _WARM_UP_S
            shape = Shape(
                int(rate * length), sessions_per_second=rate, start_ms=int(time.time() * 1000) + 500
            )
            began = time.monotonic()
            with TopicWriter(
                KafkaSettings(bootstrap_servers=here.bootstrap_servers), INPUT, with_timestamps=True
            ) as writer:
                for group in paced(chain.from_iterable(generate_blocks(shape)), 1):
                    writer.write(group)
                    _check_alive(here, job, publisher)
            while len(latencies) < shape.sessions and time.monotonic() - began < length + 60:
                time.sleep(0.1)
        finally:
            stop.set()
            watcher.join()
    warm = latencies[0][0] + _WARM_UP_S
    measured = [latency for at, latency in latencies if at > warm]
    cuts = statistics.quantiles(measured, n=100)
    return {
        "latency_sessions_per_s": rate,
        "latency_sessions": len(measured),
        "latency_p50_s": round(cuts[49], 3),
        "latency_p90_s": round(cuts[89], 3),
        "latency_p99_s": round(cuts[98], 3),
    }


def _watch(here: World, latencies: list[tuple[float, float]], stop: threading.Event) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": here.bootstrap_servers,
            "group.id": "bench",
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 10,
        }
    )
    consumer.subscribe([transforms.TOPIC])
    last = b"%02d" % (transforms.OUTPUTS - 1)
    while not stop.is_set():
        for message in consumer.consume(1_000, timeout=0.02):
            value = message.value()
            if message.error() is None and value is not None and value[14:16] == last:
                latencies.append((time.monotonic(), time.time() - int(value[:13]) / 1000))
    consumer.close()


def _check_alive(here: World, *processes: ServerProcess) -> None:
    for process in processes:
        if not process.is_alive():
            raise RuntimeError(f"{process.name} ended:\n{here.log_tail(process.name)}")


if __name__ == "__main__":
    typer.run(main)
