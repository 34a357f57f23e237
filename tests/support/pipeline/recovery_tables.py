"""What Kafka, Postgres and the cache hold in a pipeline of two partitions and one lane, written as in docs/recovery.md."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from contract.progress import Progress
from tests.support.pages.compared import Row
from tests.support.queries import query
from tests.support.reading import read_to_end

NOTHING = "–"
_PARTITIONS = ("0", "1")
_STARTED = re.compile(r"\bjob_started\b")
_REBUILT = re.compile(r"open_sessions_rebuilt\b.*?\bevents=(\d+)")


@dataclass(frozen=True)
class RecoveryTables:
    """Where things are: what the page's columns show. Two values with a slash are those of partition 0 and partition 1."""

    dsn: str
    cache: Path
    log: Path
    """Of the job."""
    input_topic: str
    input_topic_id: str
    output_bootstrap: str
    output_topic: str
    progress_topic: str

    # The job

    def job(self) -> Row:
        """The columns of a step of the job."""
        keys = query(self.dsn, "SELECT session_key FROM outbox.session_output ORDER BY batch_id, session_key")
        batch, ends, opened = query(
            self.dsn,
            "SELECT batch_id, end_offsets, open_state FROM outbox.batch ORDER BY batch_id DESC LIMIT 1",
        )[0]
        return {
            "ledger ends with": str(batch),
            "read up to": self._offsets(ends),
            "open": self._open(opened),
            "in the cache": "/".join(self._kept(opened, partition) for partition in _PARTITIONS),
            "rows in the outbox": _listed(key for (key,) in keys),
        }

    def _open(self, opened: Mapping[str, Any]) -> str:
        found = (self._of(opened, partition) for partition in _PARTITIONS)
        return "/".join(
            NOTHING if each is None else f"{each['sessions']} since {each['safe']}" for each in found
        )

    def _kept(self, opened: Mapping[str, Any], partition: str) -> str:
        """Whether the cache has what is open in a partition."""
        found = self._of(opened, partition)
        if found is None:
            return NOTHING
        return "yes" if [*self.cache.glob(f"*/*-{partition}/{found['digest']}.sessions")] else "no"

    def _of(self, opened: Mapping[str, Any], partition: str) -> Any:
        return opened.get(self.input_topic_id, {}).get(partition)

    def events_read_again(self) -> list[int]:
        """Of each start of the job, by its log."""
        log = self.log.read_text("utf-8", "replace")
        starts = [*(found.start() for found in _STARTED.finditer(log)), len(log)]
        return [sum(map(int, _REBUILT.findall(log[begin:end]))) for begin, end in pairwise(starts)]

    # The outbox

    def ledger(self) -> dict[str, Row]:
        """The ledger by batch."""
        return {
            str(row[0]): {
                "generation": str(row[1]),
                "start": self._offsets(row[2]),
                "end": self._offsets(row[3]),
                "safe": "/".join(self._safe(row[3], row[4], partition) for partition in _PARTITIONS),
                "open": self._open(row[4]),
                **dict(zip(("events", "sessions", "outputs"), map(str, row[5:8]), strict=True)),
            }
            for row in query(
                self.dsn,
                "SELECT batch_id, generation, start_offsets, end_offsets, open_state, input_events, sessions, output_events"
                " FROM outbox.batch",
            )
        }

    def _safe(self, ends: Mapping[str, Any], opened: Mapping[str, Any], partition: str) -> str:
        found = self._of(opened, partition)
        return str(ends[self.input_topic_id][partition] if found is None else found["safe"])

    def outputs(self) -> dict[str, Row]:
        """The outbox's output events by their id, the topic id that it begins with cut short; `again` with a revision above 0."""
        return {
            outbox_id.replace(self.input_topic_id, "…", 1) + (", again" if revision else ""): {
                "revision": str(revision),
                "in batch": str(batch),
                "session key": key,
                "session": f"partition {partition}, {first} to {last}",
                "value": value.decode(),
            }
            for outbox_id, revision, batch, key, partition, first, last, value in query(
                self.dsn,
                "SELECT outbox_id, revision, batch_id, session_key, input_partition, session_start_offset, session_end_offset, value"
                " FROM outbox.event",
            )
        }

    def generations(self, dsn: str = "") -> dict[str, Row]:
        """The generations by number. `dsn`: of another outbox that reads the same input."""
        return {
            str(row[0]): {
                "reason": row[1],
                "start": self._offsets(row[4]),
                "revision": str(row[5]),
                **(
                    {}
                    if dsn
                    else {"continues": NOTHING if row[2] is None else f"generation {row[2]}, batch {row[3]}"}
                ),
            }
            for row in query(
                dsn or self.dsn,
                "SELECT generation, reason, from_generation, from_batch, start_offsets, revision FROM outbox.generation",
            )
        }

    def runs(self) -> dict[str, Row]:
        """What each start of the job found, numbered in their order."""
        rows = query(self.dsn, "SELECT restored, generation, resumes_at FROM outbox.run ORDER BY number")
        return {
            str(number): {
                "restored": restored,
                "generation": str(generation),
                "resumes at": self._offsets(resumes_at),
                "events read again": str(events),
            }
            for number, ((restored, generation, resumes_at), events) in enumerate(
                zip(rows, self.events_read_again(), strict=True), 1
            )
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
        return "/".join(_text(partitions.get(partition)) for partition in _PARTITIONS)


def read(bootstrap: str, topic: str, isolation: str) -> list[str]:
    """The values of a topic's one partition; none where the topic does not exist."""
    return [
        (message.value() or b"").decode() for message in read_to_end(bootstrap, topic, isolation=isolation)
    ]


def _position(seq: Any, batch: Any) -> str:
    return NOTHING if seq == 0 else f"{seq}, batch {batch}"


def _text(value: object) -> str:
    return NOTHING if value is None else str(value)


def _listed(values: Iterable[str]) -> str:
    return ", ".join(values) or NOTHING
