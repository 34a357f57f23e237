"""The job without Spark, Kafka and Postgres: its tasks as they are, a log in memory, and the position as the ledger would keep it."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa

from service.settings import SchemaRegistrySettings, SessionSettings, Settings, SourceSettings
from spark_job import OutputEvent, Session
from spark_job.assembly import known_files, rows
from spark_job.assembly.code_fingerprint import task_code_fingerprint
from spark_job.assembly.known_files import KnownFiles
from spark_job.assembly.slices import AppliedRules, RulesFrom, Slice, TaskSettings
from spark_job.assembly.task import AssemblyTask
from spark_job.input.columns import RecordColumns
from spark_job.input.offsets import Offsets, TopicPartition
from spark_job.input.topics import InputTopics
from spark_job.ledger.assembly_rules import stored_rules
from spark_job.ledger.generations import Generation
from spark_job.ledger.open_partitions import OpenPartitions
from spark_job.ledger.position import InputPosition, StreamRow
from spark_job.ledger.rules_lineage import Lineage
from spark_job.ledger.slice_building import slices_of
from spark_job.outputs import transform
from spark_job.outputs.settings import TransformOf
from spark_job.recovery import findings
from spark_job.sessions.settings import AssemblySettings, Format
from spark_job.sink import batch_result
from spark_job.sink.batch_result import Letter, PartitionReport, SessionRow
from tests.support.reference.message import Message, in_blocks
from tests.support.reference.model import Record

UUID = "00000000-0000-0000-0000-000000000007"
HERE = "tests.support.histories.tasks"
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def told(session: Session) -> Iterable[OutputEvent]:
    """A transform that shows all it was given."""
    events = [
        [event.offset, event.type, event.timestamp.timestamp(), event.raw.hex()] for event in session.events
    ]
    whole = {"key": session.key, "start": str(session.start), "end": str(session.end), "events": events}
    return [OutputEvent("t", whole | {"part": session.part, "ended_by": session.ended_by})]


def careless(session: Session) -> Iterable[OutputEvent]:
    """A transform that catches whatever goes wrong."""
    try:
        values = [event.value["event_type"] for event in session.events]
    except Exception:  # noqa: BLE001 - as said
        values = []
    return [OutputEvent("t", {"types": values})]


def task_settings(cache: Path, **changed: Any) -> TaskSettings:
    """What the tasks of a run are told; `function` names another transform than `told`, `stop_on_error` goes with it."""
    function = changed.pop("function", f"{HERE}:told")
    of = TransformOf(
        function,
        _fingerprint(function),
        changed.pop("stop_on_error", False),
        changed.pop("max_row_bytes", 1 << 20),
    )
    settings = TaskSettings(UUID, str(cache), of, task_code_fingerprint())
    return replace(settings, **changed)


@cache
def _description(session: SessionSettings, format: Format = "json") -> dict[str, Any]:
    registry = SchemaRegistrySettings(url="" if format == "json" else "http://registry")
    return stored_rules(
        Settings(session=session, source=SourceSettings(format=format), schema_registry=registry)
    )


@cache
def _fingerprint(function: str) -> str:
    return transform.fingerprint(transform.load(function))


def slice_of(partition: int = 0, rules: AssemblySettings | None = None, **changed: Any) -> Slice:
    """A slice of the whole log, over nothing that is open."""
    rules = rules or AssemblySettings()
    sources = {"key": ""} if rules.key_path is None else {}
    sources |= {"type": "type"} if rules.type_path is None else {}
    sources |= {"schema_id": "schema_id"} if rules.schema_id_in_header else {}
    lineage = (RulesFrom(0, AppliedRules(rules, RecordColumns(sources))),)
    return replace(Slice("in", "id", partition, 0, 1 << 40, 0, "", b"", lineage), **changed)


def batches(
    of: Slice, source: int, records: Sequence[Record], size: int = 1_000, *, traced: bool = False
) -> Iterator[pa.RecordBatch]:
    """A partition's records as Spark gives them to a task, at most so many at once; `traced`: with `[tracing] propagate`."""
    wanted = of.lineage[-1].applied.columns
    wanted = wanted.with_trace_context() if traced else wanted
    for at in range(0, len(records), size):
        table = wanted.table([Message(record) for record in records[at : at + size]])
        columns = {"source": pa.array([source] * table.num_rows, pa.int32())}
        columns |= {name: table.column(name).combine_chunks() for name in table.column_names}
        yield pa.record_batch(columns)


def run_task(
    settings: TaskSettings,
    slices: Mapping[int, Slice],
    records: Mapping[int, Sequence[Record]],
    size: int = 1_000,
    *,
    traced: bool = False,
) -> pa.Table:
    """One task over some slices, by source number; the records of the log that lie in each are its input."""
    inputs = {
        source: [record for record in records[source] if of.start <= record.offset < of.end]
        for source, of in slices.items()
    }
    given = [
        each
        for source, of in slices.items()
        for each in batches(of, source, inputs[source], size, traced=traced)
    ]
    return pa.Table.from_batches(list(AssemblyTask(settings, slices)(given)), schema=rows.SCHEMA)


def kafka(
    logs: Mapping[int, Sequence[Record]], asked: Callable[[int, int, int], None] | None = None
) -> Callable[..., Iterator[list[Message]]]:
    """In the place of `committed_records`: (client, topic, partition, start, end, timeout). `asked` is told what is read."""

    def committed(
        _client: object, _topic: str, partition: int, start: int, end: int, _timeout_s: float
    ) -> Iterator[list[Message]]:
        if asked is not None:
            asked(partition, start, end)
        yield from in_blocks(Message(record) for record in logs[partition] if start <= record.offset < end)

    return committed


@dataclass
class Job:
    """Batch after batch; `rebuild.committed_records` must be `kafka` of the same log."""

    logs: Mapping[int, Sequence[Record]]
    caches: Path
    session: SessionSettings
    traced: bool = False
    """With `[tracing] propagate`."""
    format: Format = "json"
    registry: Mapping[str, str | int | float | bool] = field(default_factory=dict)
    """Of the client of the schema registry."""
    sessions: list[SessionRow] = field(default_factory=list)
    letters: list[Letter] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    rebuilt: int = 0
    """Partitions whose open sessions were found again."""
    machine: int = 0
    _workers: dict[int, KnownFiles] = field(default_factory=dict)
    """What the process of each task knows of files."""

    def __post_init__(self) -> None:
        start = Offsets({TopicPartition("id", partition): 0 for partition in self.logs})
        generation = Generation(
            1,
            start,
            OpenPartitions(),
            Lineage(),
            {"id": "in"},
            "first",
            "skip",
            0,
            _description(self.session, self.format),
        )
        self.position = InputPosition(generation, None)

    def change_assembly(self, session: SessionSettings) -> None:
        """As `--accept-changed-assembly` does: a generation that begins where the one before is."""
        begin = findings.here(self.position)
        of = self.position.generation
        opened = replace(
            of,
            number=of.number + 1,
            start=begin.end,
            open=begin.open,
            lineage=begin.lineage,
            assembly=_description(session, self.format),
        )
        self.position = InputPosition(opened, None)

    def continue_after_losses(self, earliest: Mapping[int, int]) -> None:
        """As `--accept-data-loss` and `--accept-truncation` do: a generation of what `logs` have from these offsets on."""
        of = self.position.generation
        ends = {partition: log[-1].offset + 1 for partition, log in self.logs.items()}
        first, past = (
            Offsets({TopicPartition("id", partition): at for partition, at in each.items()})
            for each in (earliest, ends)
        )
        found = findings.continuation(
            self.position,
            findings.Input({"in": "id"}, first, past, of.assembly),
            findings.AcceptedRisks(data_loss=True, truncation=True),
            greatest_revision=0,
        )
        assert isinstance(found, findings.Opening)
        opened = replace(of, number=of.number + 1, start=found.start, open=found.open, lineage=found.lineage)
        self.position = InputPosition(opened, None)

    def run_batch(
        self, ends: Mapping[int, int], *, tasks: int = 1, lose_cache: Collection[int] = (), size: int = 1_000
    ) -> list[PartitionReport]:
        """Take a batch up to these ends, by partition, on so many tasks, each on a machine of its own for those that `lose_cache` names."""
        start = self.position.end
        end = Offsets(
            {
                (where := TopicPartition("id", partition)): max(end, start.at(where))
                for partition, end in ends.items()
            }
        )
        topics = InputTopics({"in": "id"}, {"in": list(self.logs)})
        slices = slices_of(self.position, start, end, topics, Offsets(), self.position)
        places = {partition: TopicPartition("id", partition) for partition in self.logs}
        tables = []
        for number in range(tasks):
            mine = {partition: of for partition, of in slices.items() if partition % tasks == number}
            cache = self.caches / "kept"
            if number in lose_cache:
                self.machine += 1
                cache = self.caches / f"new-{self.machine}"
            settings = task_settings(cache, registry=self.registry)
            worker = self._workers.setdefault(number, KnownFiles())
            with patch.object(known_files, "KNOWN", worker):
                tables.append(run_task(settings, mine, self.logs, size, traced=self.traced))
        found = batch_result.read(pa.concat_tables(tables), places)
        self.sessions += found.sessions
        self.letters += found.letters
        self.counts.update(found.counts)
        self.rebuilt += sum(each.rebuilt_events is not None for each in found.partitions)
        self._move(
            {TopicPartition("id", partition): of.end for partition, of in slices.items()}, found.partitions
        )
        return found.partitions

    def outcome(self) -> tuple[list[SessionRow], list[Letter]]:
        """All rows and letters, in an order that does not depend on batches and tasks."""
        return sorted(self.sessions, key=lambda row: (row.where, row.end)), sorted(
            self.letters,
            key=lambda letter: (letter.where, letter.closing_offset, letter.first_offset, letter.reason),
        )

    def digests(self) -> dict[TopicPartition, tuple[int, str | None]]:
        """Of each partition with open sessions: the safe offset and the digest."""
        return {where: (each.safe, each.digest) for where, each in self.position.open.items()}

    def _move(self, ends: Mapping[TopicPartition, int], found: Sequence[PartitionReport]) -> None:
        opened = dict(self.position.open)
        for each in found:
            opened.pop(each.where, None)
            now = each.open(ends[each.where])
            opened |= {} if now is None else {each.where: now}
        # To JSON and back, as the ledger keeps it.
        kept = OpenPartitions.from_json(OpenPartitions(opened).to_json())
        row = StreamRow((self.position.batch_id or 0) + 1, Offsets({**self.position.end, **ends}), kept, NOW)
        self.position = replace(self.position, newest=row)
