"""What a task is told of the partitions of its batch. Plain values: they travel to the executors with each batch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from spark_job.assembly.refused_ids import NOTHING_REFUSED, RefusedIds
from spark_job.input.columns import RecordColumns
from spark_job.outputs.settings import OutputSchemaRules, TransformOf
from spark_job.sessions.settings import AssemblySettings


@dataclass(frozen=True)
class RulesFrom:
    """Assembly rules, and the offset from which on they apply."""

    from_offset: int
    rules: AssemblySettings
    columns: RecordColumns


@dataclass(frozen=True)
class Slice:
    """The new records of one partition, and what is open before them."""

    topic: str
    topic_id: str
    partition: int
    start: int
    end: int
    """Exclusive."""
    safe: int
    """Where the oldest session that is open at `start` begins."""
    digest: str | None
    """Of what is open at `start`: empty where nothing is, None where it is not known (an upgraded outbox, an accepted loss)."""
    tombstones: bytes
    """An encoded table; empty where there are none."""
    lineage: tuple[RulesFrom, ...]
    """By offset, ascending; the last ones are the slice's own."""
    accept_differing: bool = False
    """What is found again need not be what was open: `--accept-data-loss` was given, and the run has read nothing here yet."""
    committed_digest: str = ""
    """Of what is open where the outbox is: the batch before may not be committed yet, and where that fails, a new run begins there."""
    keep_timed_out: bool = False
    """Letters `timed_out` that close below `start` are not forgotten: the first slice after an upgrade from before schema 0005."""
    refused: RefusedIds = NOTHING_REFUSED
    """Which records below `start` were refused for their schema's id."""

    @property
    def place(self) -> str:
        """For messages."""
        return f"{self.topic}/{self.partition}"

    @property
    def names_before(self) -> list[tuple[int, int, Sequence[str]]]:
        """(from, to, names of the kinds), by offset, where other rules apply than the slice's."""
        names = [(each.from_offset, each.rules.names) for each in self.lineage]
        return [(low, high, each) for (low, each), (high, _) in pairwise(names) if each != self.rules.names]

    @property
    def rules(self) -> AssemblySettings:
        """The slice's own."""
        return self.lineage[-1].rules


@dataclass(frozen=True)
class TaskSettings:
    """What all tasks of a run are told."""

    outbox_uuid: str
    cache: str
    """Folder of the open sessions on the executor's machine."""
    transform: TransformOf
    code: str
    """Fingerprint of what tasks run; a worker that has other code refuses."""
    kafka: Mapping[str, str | int | float | bool] = field(default_factory=dict, repr=False)
    """Of the client that finds open sessions again."""
    kafka_timeout_s: float = 30.0
    registry: Mapping[str, str | int | float | bool] = field(default_factory=dict, repr=False)
    """Of the client of the schema registry; empty where there is none."""
    output_schemas: OutputSchemaRules = field(default_factory=OutputSchemaRules)
    fault_file: str | None = None
    """The plan of the faults that a test injects (service/lifecycle/fault_points.py)."""
