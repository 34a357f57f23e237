"""Where a requested restore begins: at a savepoint, or, with the policy `skip`, at the greatest position of all time.

`spark-job savepoint list` uses `restorability` to show whether a reissue from each savepoint would be accepted.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from psycopg.rows import dict_row

from db.connection import Connection
from db.statements import queries
from service.errors import SettingsError
from spark_job.input.offsets import Offsets, TopicPartition
from spark_job.ledger import position, savepoints
from spark_job.ledger.generations import greatest_revision
from spark_job.ledger.open_partitions import OpenPartition, OpenPartitions
from spark_job.ledger.position import InputPosition
from spark_job.ledger.rules_lineage import Former, Lineage
from spark_job.ledger.savepoints import Savepoint
from spark_job.recovery import findings
from spark_job.recovery.findings import AcceptedRisks, Finding, From, Input, Opening

_GENERATIONS = queries("spark_job", "generations")

Policy = Literal["skip", "reissue"]


@dataclass(frozen=True)
class Restore:
    """A requested restore. `savepoint`: None with the policy `skip`."""

    savepoint: str | None
    policy: Policy
    accepted: AcceptedRisks

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> "Restore":
        """Read the arguments of a request."""
        accepted = AcceptedRisks(
            data_loss=bool(arguments.get("accept_data_loss")),
            changed_assembly=bool(arguments.get("accept_changed_assembly")),
        )
        return cls(arguments.get("savepoint"), arguments["policy"], accepted)

    @property
    def command(self) -> str:
        """The command line to repeat with a flag."""
        name = f" {self.savepoint}" if self.savepoint else ""
        return f"spark-job savepoint restore{name} --policy {self.policy}"


def open_restored(connection: Connection, at: InputPosition, asked: Restore, now: Input) -> Opening:
    """Return the generation that a restore would open.

    Raises SettingsError if the savepoint is unknown, missing, or of no use to the policy, ContinuityError if a risk must be accepted
    first.
    """
    revision = greatest_revision(connection)
    greatest = greatest_position(connection)
    if asked.policy == "skip":
        if asked.savepoint is not None:
            raise SettingsError(
                f"the policy skip continues at the greatest position of all time, not at a savepoint: leave out the name. To go back to "
                f"{asked.savepoint!r} and send all later sessions again, use --policy reissue"
            )
        begin = replace(greatest, revision=at.generation.revision)
        finding = Finding("skip", "restored: continues at the greatest position of all time (skip)")
    else:
        if asked.savepoint is None:
            raise SettingsError(
                "a reissue needs a savepoint to go back to: name one, `spark-job savepoint list` shows them"
            )
        found = savepoints.get(connection, asked.savepoint)
        begin = _reissue_from(found, now, revision=revision + 1, read=greatest.end)
        finding = Finding("savepoint", f"restored from savepoint {found.name!r} (reissue)")
    return findings.open_wanted(
        begin,
        finding,
        now,
        asked.accepted,
        greatest_revision=revision,
        savepoint=asked.savepoint,
        command=asked.command,
    )


@dataclass(frozen=True)
class Restorability:
    """Whether a reissue from a savepoint would be accepted now."""

    state: Literal["alive", "changed", "expired", "unknown"]
    """alive: accepted without a flag. changed: only the assembly rules differ. expired: Kafka lacks input that a reissue needs, or has
    other events at its offsets. unknown: Kafka could not be read.
    """
    reasons: Sequence[str] = ()
    """Why it is not alive."""
    flags: Sequence[str] | None = None
    """The flags with which it would be accepted; None if one of the reasons has no flag, or if unknown."""
    events: int | None = None
    """Number of offsets that Kafka has from the savepoint's position on; None if unknown."""

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON-ready values."""
        return {
            "state": self.state,
            "reasons": list(self.reasons),
            "flags": None if self.flags is None else list(self.flags),
            "events_after": self.events,
        }


def restorability(found: Savepoint, now: Input, read: Offsets) -> Restorability:
    """Return what `open_restored` would answer to a reissue from a savepoint. `read`: the end of `greatest_position`."""
    begin = _reissue_from(found, now, revision=0, read=read)
    against = [finding for finding in findings.of_input(begin, now) if finding.flag is not None]
    settings_alone = all(finding.reason == "changed_assembly" for finding in against)
    return Restorability(
        "alive" if not against else "changed" if settings_alone else "expired",
        [finding.text for finding in against],
        findings.flags_of_commands(against),
        sum(
            max(0, end - max(found.end.at(where), now.earliest.at(where)))
            for where, end in now.latest.items()
            if where.topic_id in found.topics
        ),
    )


def _reissue_from(found: Savepoint, now: Input, *, revision: int, read: Offsets) -> From:
    return From(
        position.with_added(found.end, found.topics, now.earliest),
        found.open,
        found.lineage,
        found.topics,
        found.assembly,
        "reissue",
        revision,
        read,
    )


def greatest_position(connection: Connection) -> From:
    """Return the greatest end of each partition in all generations, with the sessions that were open there.

    If Kafka has assigned a partition's offsets a second time, the ends from before that do not count.
    """
    return greatest_of(position_rows(connection))


def greatest_of(rows: list[dict[str, Any]]) -> From:
    """Return what `greatest_position` returns, from the rows of `positions` in sql/generations.sql."""
    ends: dict[TopicPartition, int] = {}
    opened: dict[TopicPartition, OpenPartition | None] = {}
    source: dict[TopicPartition, int] = {}
    for number, row in enumerate(rows):
        start, start_open = (
            Offsets.from_json(row["start_offsets"]),
            OpenPartitions.from_json(row["start_open"]),
        )
        for where in Offsets.from_json(row["cut_offsets"]):
            ends.pop(where, None)
        end, end_open = Offsets.from_json(row["end_offsets"]), OpenPartitions.from_json(row["end_open"])
        for offsets, found in ((start, start_open), (end, end_open)):
            for where, offset in offsets.items():
                if offset >= ends.get(where, 0):
                    ends[where], opened[where], source[where] = offset, found.get(where), number
    newest = rows[-1]
    topics = {topic_id: topic for row in rows for topic_id, topic in row["topics"].items()} | newest["topics"]
    # If a topic was created again, the positions in the former one were given up.
    now = {topic: topic_id for topic_id, topic in newest["topics"].items()}
    replaced = {topic_id for topic_id, topic in topics.items() if now.get(topic, topic_id) != topic_id}
    for where in [where for where in source if where.topic_id in replaced]:
        del source[where]
        ends.pop(where, None)
    end = Offsets(ends)
    left = OpenPartitions(
        {where: each for where, each in opened.items() if each is not None and where in ends}
    )
    return From(
        end=end,
        open=left,
        lineage=_merged(rows, source, left.safe(end)),
        topics={topic_id: topic for topic_id, topic in topics.items() if topic_id not in replaced},
        assembly=newest["assembly"],
        policy="skip",
        revision=0,
    )


def _merged(rows: list[dict[str, Any]], source: Mapping[TopicPartition, int], safe: Offsets) -> Lineage:
    """Give each partition the lineage of the generation that its position comes from. `safe`: the safe offsets of all partitions."""
    formers: list[Former] = []
    for number in sorted(set(source.values())):
        row = rows[number]
        mine = Offsets({where: offset for where, offset in safe.items() if source[where] == number})
        of_row = Lineage.from_json(row["lineage"]).followed(
            row["assembly"], Offsets.from_json(row["start_offsets"]), mine
        )
        formers += of_row.only_for(mine, safe).former if len(mine) < len(safe) else of_row.former
    return Lineage(tuple(formers))


def position_rows(connection: Connection) -> list[dict[str, Any]]:
    """Return the rows of every position in the ledger and the generations."""
    with connection.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(_GENERATIONS["positions"]).fetchall()
