"""What Kafka, Postgres and Spark's checkpoint hold in a pipeline of two partitions and one lane, written as in docs/recovery.md."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, TopicPartition

from publisher.progress import Progress
from spark_job.checkpoint import parse_offsets
from spark_job.sessions.state import VERSION, OpenState
from tests.acceptance.page_tables import Row
from tests.integration.publisher.harness import query

NOTHING = "–"


@dataclass(frozen=True)
class Places:
    """Where things are: what the page's columns show. Offsets are written `partition 0/partition 1`."""

    dsn: str
    checkpoint: Path
    input_topic: str
    input_topic_id: str
    output_bootstrap: str
    output_topic: str
    progress_topic: str

    # Spark's checkpoint

    def generation_directory(self) -> Path | None:
        """The newest generation's directory, None while there is none."""
        rows = query(
            self.dsn,
            "SELECT generation, directory_token FROM outbox.generation ORDER BY generation DESC LIMIT 1",
        )
        return self.checkpoint / f"gen-{rows[0][0]}-{rows[0][1]}" if rows else None

    def newest(self, log: str) -> int:
        """The newest batch in `offsets` or `commits`, -1 where there is none."""
        directory = self.generation_directory()
        entries = [] if directory is None else (directory / log).glob("*")
        return max((int(entry.name) for entry in entries if entry.name.isdigit()), default=-1)

    def job(self) -> Row:
        """The columns of a step of the job."""
        planned, finished = self.newest("offsets"), self.newest("commits")
        keys = query(self.dsn, "SELECT session_key FROM outbox.session_output ORDER BY batch_id, session_key")
        newest = query(self.dsn, "SELECT max(batch_id) FROM outbox.batch")[0][0]
        return {
            "offsets/": NOTHING if planned < 0 else f"{planned}: {self._planned_end(planned)}",
            "commits/": _text(None if finished < 0 else finished),
            "open in Spark's state": _listed(self._open_sessions(finished)),
            "ledger ends with": _text(newest),
            "rows in the outbox": _listed(key for (key,) in keys),
        }

    def _planned_end(self, batch: int) -> str:
        directory = self.generation_directory()
        assert directory is not None
        entry = directory / "offsets" / str(batch)
        ids = {self.input_topic: self.input_topic_id}
        return self._offsets(parse_offsets(entry.read_text("utf-8"), str(entry), ids).to_json())

    def _open_sessions(self, finished: int) -> list[str]:
        """Keys of the sessions that are open in the state after batch `finished`, which is version `finished` + 1."""
        directory = self.generation_directory()
        buckets: dict[bytes, bytes] = {}
        for version in range(1, finished + 2):
            assert directory is not None
            for delta in directory.glob(f"state/0/*/{version}.delta"):
                buckets |= _delta(delta.read_bytes())
        found = [OpenState.from_bytes(_blob(value)).key.to_pylist() for value in buckets.values() if value]
        return sorted(key for keys in found for key in keys)

    # The outbox

    def ledger(self) -> dict[str, Row]:
        """The ledger by batch."""
        return {
            str(row[0]): {
                "generation": str(row[1]),
                "Spark batch": str(row[2]),
                **{name: self._offsets(row[i]) for i, name in enumerate(("start", "end", "done", "safe"), 3)},
                **dict(zip(("events", "sessions", "outputs", "skipped"), map(str, row[7:11]), strict=True)),
                "computed twice": "yes" if row[11] else "no",
            }
            for row in query(
                self.dsn,
                "SELECT batch_id, generation, spark_batch, start_offsets, end_offsets, done_offsets, safe_offsets,"
                " input_events, sessions, output_events, skipped_sessions, recomputed_at IS NOT NULL FROM outbox.batch",
            )
        }

    def outputs(self) -> dict[str, Row]:
        """The outbox's output events by their id, the topic id that it begins with cut short."""
        return {
            outbox_id.replace(self.input_topic_id, "…", 1): {
                "in batch": str(batch),
                "session key": key,
                "session": f"partition {partition}, {first} to {last}",
                "value": value.decode(),
            }
            for outbox_id, batch, key, partition, first, last, value in query(
                self.dsn,
                "SELECT outbox_id, batch_id, session_key, input_partition, session_start_offset, session_end_offset, value"
                " FROM outbox.event",
            )
        }

    def buckets(self, generation: int) -> dict[str, Row]:
        """A generation's bucket summaries as they are now, after the newest batch."""
        newest = query(self.dsn, "SELECT max(batch_id) FROM outbox.batch")[0][0]
        return {
            f"generation {generation}, bucket {bucket}, after batch {newest}": {
                "by batch": str(batch),
                "open sessions": str(sessions),
                "open events": str(events),
                "oldest open": self._offsets(oldest),
            }
            for bucket, batch, sessions, events, oldest in query(
                self.dsn,
                "SELECT bucket, batch_id, open_sessions, open_events, oldest_open FROM outbox.bucket WHERE generation = %s",
                generation,
            )
        }

    def generations(self) -> dict[str, Row]:
        """The generations by number."""
        return {
            str(row[0]): {
                "reason": row[1],
                "continues": NOTHING if row[2] is None else f"generation {row[2]}, batch {row[3]}",
                "start": self._offsets(row[4]),
                "high water": self._offsets(row[5]),
                "read again": str(row[6]),
            }
            for row in query(
                self.dsn,
                "SELECT generation, reason, from_generation, from_batch, start_offsets, high_water, read_again FROM outbox.generation",
            )
        }

    def runs(self) -> dict[str, Row]:
        """What each start of the job found, numbered in their order."""
        rows = query(
            self.dsn,
            "SELECT restored, generation, spark_batch, resumes_at, read_again FROM outbox.run ORDER BY started_at",
        )
        return {
            str(number): {
                "restored": restored,
                "generation": str(generation),
                "next Spark batch": str(spark_batch),
                "resumes at": self._offsets(resumes_at),
                "reads again": str(read_again),
            }
            for number, (restored, generation, spark_batch, resumes_at, read_again) in enumerate(rows, 1)
        }

    # The publisher and its Kafka

    def publisher(self, *, kafka: bool = True) -> Row:
        """The columns of a step of the publisher; `kafka` False: what can be seen while the outputs' Kafka is away."""
        mirror = query(self.dsn, "SELECT seq, cursor_batch FROM outbox.lane")
        deliveries = query(self.dsn, "SELECT seq, kafka_offsets IS NULL FROM outbox.delivery ORDER BY seq")
        ledger = query(self.dsn, "SELECT max(batch_id) FROM outbox.batch")[0][0]
        outbox = {
            "ledger ends with": str(ledger),
            "lane's mirror": _position(*mirror[0]) if mirror else NOTHING,
            "deliveries": _listed(f"{seq}{' (filled in)' if filled else ''}" for seq, filled in deliveries),
        }
        if not kafka:
            return outbox | {"progress record": "?", "readers see": "?"}
        return outbox | {"progress record": self.progress(), "readers see": _listed(self.visible())}

    def visible(self) -> list[str]:
        """The output topic as a `read_committed` consumer sees it."""
        return read(self.output_bootstrap, self.output_topic, "read_committed")

    def in_the_log(self) -> list[str]:
        """All records of the output topic, those of open and aborted transactions too."""
        return read(self.output_bootstrap, self.output_topic, "read_uncommitted")

    def progress(self) -> str:
        """The newest progress record."""
        records = read(self.output_bootstrap, self.progress_topic, "read_committed")
        if not records:
            return NOTHING
        newest = Progress.decode(records[-1].encode())
        return _position(newest.seq, newest.cursor.batch_id)

    def _offsets(self, value: Mapping[str, Mapping[str, int]]) -> str:
        partitions = value.get(self.input_topic_id, {})
        return "/".join(_text(partitions.get(partition)) for partition in ("0", "1"))


def read(bootstrap: str, topic: str, isolation: str) -> list[str]:
    """Read a topic's one partition from its first record to its end; empty where the topic does not exist."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    found: list[str] = []
    try:
        if topic not in consumer.list_topics(timeout=30).topics:
            return found
        consumer.assign([TopicPartition(topic, 0, 0)])
        while True:
            message = consumer.poll(30)
            assert message is not None, f"{topic} could not be read to its end"
            error = message.error()
            if error is None:
                found.append((message.value() or b"").decode())
            elif error.code() == KafkaError._PARTITION_EOF:
                return found
            else:
                raise AssertionError(error)
    finally:
        consumer.close()


def _delta(packed: bytes) -> dict[bytes, bytes]:
    """Read a delta file of Spark's state store: lengths and bytes of keys and values; a value of length -1 is a removal.

    `HDFSBackedStateStoreProvider` in Spark's source.
    """
    data = memoryview(pa.CompressedInputStream(pa.BufferReader(packed), "zstd").read())
    found: dict[bytes, bytes] = {}
    at = 0

    def length() -> int:
        nonlocal at
        at += 4
        return int.from_bytes(data[at - 4 : at], "big", signed=True)

    def taken(size: int) -> bytes:
        nonlocal at
        at += size
        return bytes(data[at - size : at])

    while (size := length()) != -1:
        key = taken(size)
        found[key] = taken(max(0, length()))
    return found


def _blob(value: bytes) -> bytes | None:
    """The bucket's binary state within Spark's row."""
    at = value.find(VERSION)
    return None if at < 0 else value[at:]


def _position(seq: Any, batch: Any) -> str:
    return NOTHING if seq == 0 else f"{seq}, batch {batch}"


def _text(value: object) -> str:
    return NOTHING if value is None else str(value)


def _listed(values: Iterable[str]) -> str:
    return ", ".join(values) or NOTHING
