"""What a task receives about the partitions of its batch. Plain values, which Spark sends to the executors with each batch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from spark_job.assembly.refused_ids import NOTHING_REFUSED, RefusedIds
from spark_job.input.columns import RecordColumns
from spark_job.outputs.settings import OutputSchemaRules, TransformOf
from spark_job.sessions.settings import AssemblySettings


class AppliedRules(NamedTuple):
    """Assembly rules as a task applies them."""

    rules: AssemblySettings
    columns: RecordColumns


@dataclass(frozen=True)
class RulesFrom:
    """Assembly rules, and the offset from which on they apply."""

    from_offset: int
    applied: AppliedRules


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
    """Of the sessions open at `start`: empty if there are none; None if unknown (an upgraded outbox, an accepted loss)."""
    tombstones: bytes
    """What OpenState.remembered returned: tombstones and later parts, with what the clock needs; empty if there are none."""
    lineage: tuple[RulesFrom, ...]
    """By offset, ascending; the last entry has the slice's own rules."""
    accept_differing: bool = False
    """Whether rebuilt sessions may differ from the digest: with `--accept-data-loss`, until the run has read this partition."""
    committed_digest: str = ""
    """Digest of the sessions open at the committed position. If the batch before this one is never committed, the next run begins there."""
    keep_timed_out: bool = False
    """Whether letters `timed_out` that close below `start` are kept: in the first slice after an upgrade from before schema 0005."""
    refused: RefusedIds = NOTHING_REFUSED
    """Which records below `start` were refused for their schema's id."""

    @property
    def place(self) -> str:
        """The partition, for messages."""
        return f"{self.topic}/{self.partition}"

    @property
    def names_before(self) -> list[tuple[int, int, Sequence[str]]]:
        """Return (from, to, names of the kinds), by offset, for events whose rules name the kinds differently than the slice's rules."""
        names = [(each.from_offset, each.applied.rules.names) for each in self.lineage]
        return [(low, high, each) for (low, each), (high, _) in pairwise(names) if each != self.rules.names]

    @property
    def rules(self) -> AssemblySettings:
        """The rules that apply to the slice."""
        return self.lineage[-1].applied.rules


@dataclass(frozen=True)
class TaskSettings:
    """What all tasks of a run receive."""

    outbox_uuid: str
    cache: str
    """Folder of the open sessions on the executor's machine."""
    transform: TransformOf
    code: str
    """Fingerprint of the code that tasks run; a worker with other code refuses to run."""
    kafka: Mapping[str, str | int | float | bool] = field(default_factory=dict, repr=False)
    """Options of the client that reads the input for rebuilds and for DirectReader."""
    kafka_timeout_s: float = 30.0
    registry: Mapping[str, str | int | float | bool] = field(default_factory=dict, repr=False)
    """Options of the schema registry's client; empty if there is none."""
    output_schemas: OutputSchemaRules = field(default_factory=OutputSchemaRules)
    fault_file: str | None = None
    """The plan of the faults that a test injects (service/lifecycle/fault_points.py)."""
