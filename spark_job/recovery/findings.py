"""Decide how a start continues: one decision for a killed job, a lost disk and a moved machine. Pure.

A start continues at the ledger's position. If a finding could lose or repeat something, a person must accept it first: a ContinuityError
names each such finding and the flag that accepts it. A finding that is accepted, or needs no flag, opens a new generation.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from service.errors import ContinuityError
from spark_job.input.offsets import Offsets, TopicPartition
from spark_job.ledger.assembly_rules import changes, has_newer_rules
from spark_job.ledger.open_partitions import OpenPartitions
from spark_job.ledger.position import InputPosition, deleted
from spark_job.ledger.rules_lineage import Lineage


@dataclass(frozen=True)
class AcceptedRisks:
    """What a person has accepted: the flags of `spark-job run`, of a restore or of a fork."""

    outbox_behind: bool = False
    new_topic: bool = False
    truncation: bool = False
    data_loss: bool = False
    changed_assembly: bool = False


@dataclass(frozen=True)
class Input:
    """The input now, by Kafka and the settings."""

    topic_ids: Mapping[str, str]
    """{topic: topic id}"""
    earliest: Offsets
    latest: Offsets
    """The ends, open transactions included."""
    assembly: Mapping[str, Any]
    """`stored_rules` of the settings."""

    @property
    def names(self) -> dict[str, str]:
        """{topic id: topic}."""
        return {topic_id: topic for topic, topic_id in self.topic_ids.items()}


@dataclass(frozen=True)
class Finding:
    """A reason to open a new generation. `flag`: the flag that accepts it; None if it was requested or cannot lose or repeat anything."""

    reason: str
    text: str
    flag: str | None = None


@dataclass(frozen=True)
class From:
    """Where a generation is to begin: the current position, a savepoint's, or the greatest of all time."""

    end: Offsets
    open: OpenPartitions
    lineage: Lineage
    topics: Mapping[str, str]
    """{topic id: topic} of the input at that position."""
    assembly: Mapping[str, Any]
    policy: str
    revision: int
    read: Offsets = field(default_factory=Offsets)
    """The greatest offset ever read of each partition; a greater offset in `end` counts instead."""


@dataclass(frozen=True)
class Resumption:
    """The newest generation continues."""

    resumes_at: Offsets
    open: OpenPartitions
    text: str


@dataclass(frozen=True)
class Opening:
    """A new generation that has no number yet."""

    reason: str
    start: Offsets
    open: OpenPartitions
    lineage: Lineage
    topics: Mapping[str, str]
    """{topic id: topic}: the topics of the former position, except those that were created again, and the current input's."""
    policy: str
    revision: int
    assembly: Mapping[str, Any]
    text: str
    savepoint: str | None = None
    cut: Offsets = field(default_factory=Offsets)
    """From these offsets on, Kafka assigns offsets a second time."""
    lost: Mapping[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    """Offsets [from, to) that Kafka has deleted although the job still needs them, also to rebuild open sessions."""


def here(at: InputPosition) -> From:
    """Return the current position."""
    of = at.generation
    return From(at.end, at.open, at.lineage, of.topics, of.assembly, of.policy, of.revision)


def continuation(
    at: InputPosition,
    now: Input,
    accepted: AcceptedRisks,
    *,
    greatest_revision: int,
    findings: Sequence[Finding] = (),
    read: Offsets | None = None,
) -> Resumption | Opening:
    """Return how the job continues from the current position. `findings`: findings that are not about the input. `read`: see `From`.

    Raises ContinuityError if a risk must be accepted first.
    """
    begin = replace(here(at), read=read or Offsets())
    found = [*findings, *of_input(begin, now)]
    if not found:
        text = f"continues at the ledger's position, {_place(at)}"
        return Resumption(_named(begin.end, now), begin.open, text)
    return _opening(begin, now, accepted, found, greatest_revision=greatest_revision)


def open_wanted(
    begin: From,
    finding: Finding,
    now: Input,
    accepted: AcceptedRisks,
    *,
    greatest_revision: int,
    savepoint: str | None = None,
    command: str = "",
) -> Opening:
    """Return the generation that a restore or a fork asks for. `command`: the command line, for error messages.

    Raises ContinuityError if a risk must be accepted first.
    """
    found = [finding, *of_input(begin, now)]
    opening = _opening(begin, now, accepted, found, greatest_revision=greatest_revision, command=command)
    return replace(opening, savepoint=savepoint)


def first(
    now: Input, start: Offsets, text: str, accepted: AcceptedRisks, findings: Sequence[Finding] = ()
) -> Opening:
    """Return the first generation of an outbox. `start`: the offsets of `[source] starting_offsets`; `text`: the same for people."""
    _require(findings, accepted)
    return Opening(
        "first",
        start,
        OpenPartitions(),
        Lineage(),
        now.names,
        "skip",
        0,
        now.assembly,
        f"fresh start: the first generation {text}",
    )


def _place(at: InputPosition) -> str:
    if at.newest is None:
        return f"the start of generation {at.generation.number} ({at.generation.reason}), which has committed nothing yet"
    return f"batch {at.newest.batch_id} of generation {at.generation.number}"


def _named(end: Offsets, now: Input) -> Offsets:
    """Return the position's end, with partitions that it lacks at their earliest offset. Topics that are not read any more keep their
    offsets.
    """
    return Offsets({**now.earliest, **end})


def _opening(
    begin: From,
    now: Input,
    accepted: AcceptedRisks,
    found: list[Finding],
    *,
    greatest_revision: int,
    command: str = "",
) -> Opening:
    _require(found, accepted, command)
    lost, cut = deleted(begin.end, begin.open, now.earliest), _cut(begin, now)
    ends = Offsets({where: end for where, (end, _) in cut.items()})
    start = dict(_named(begin.end, now).lowered(ends))
    opened = dict(begin.open.cut(begin.end, ends))
    replaced = {
        topic_id for topic_id, topic in begin.topics.items() if now.topic_ids.get(topic, topic_id) != topic_id
    }
    for where in [where for where in start if where.topic_id in replaced]:
        start.pop(where)
        opened.pop(where, None)
    for where in lost:
        start[where] = max(start[where], now.earliest.at(where))
        if where in opened:
            # Without a digest, because the beginnings of these sessions are gone.
            opened[where] = opened[where].unproven(max(opened[where].safe, now.earliest.at(where)))
    revision = begin.revision
    if cut:
        # Kafka assigns offsets a second time: sessions that end at them must not look like those sent before.
        revision = max(revision, greatest_revision) + 1
    return Opening(
        reason=min((finding.reason for finding in found), key=_WEIGHT.index),
        start=Offsets(start),
        open=OpenPartitions(
            {
                where: each
                for where, each in opened.items()
                if each.digest is not None or each.tombstones or each.safe < start[where]
            }
        ),
        lineage=begin.lineage,
        topics={id_: topic for id_, topic in begin.topics.items() if id_ not in replaced} | now.names,
        policy=begin.policy,
        revision=revision,
        assembly=now.assembly,
        text="; ".join(finding.text for finding in found),
        cut=ends,
        lost=lost,
    )


def of_input(begin: From, now: Input) -> list[Finding]:
    """Return the findings about Kafka and the settings for a generation that begins at `begin`."""
    found = [
        Finding(
            "new_topic",
            f"input topic {topic!r} was deleted and created again: its id is {now.topic_ids[topic]}, the outbox has read {old_id}. "
            f"Sessions open in the old one cannot be completed ({_open(begin, old_id)}); the new one is read from its earliest record on",
            "--accept-new-topic",
        )
        for old_id, topic in begin.topics.items()
        if now.topic_ids.get(topic, old_id) != old_id
    ]
    added = sorted(set(now.topic_ids) - set(begin.topics.values()))
    if added:
        text = f"new in [source] topics, read from the earliest record on: {', '.join(added)}"
        found.append(Finding("new_topic", text))
    cut, lost = _cut(begin, now), deleted(begin.end, begin.open, now.earliest)
    if cut:
        found.append(Finding("truncation", _truncation(cut, now), "--accept-truncation"))
    if lost:
        found.append(Finding("data_loss", _loss(begin, lost, now), "--accept-data-loss"))
    if has_newer_rules(begin.assembly, now.assembly):
        found.append(
            Finding(
                "changed_assembly",
                "this release has newer assembly rules (CHANGELOG.md): they apply to later events only",
            )
        )
    changed = changes(begin.assembly, now.assembly)
    if changed:
        found.append(
            Finding(
                "changed_assembly",
                f"the assembly rules have changed: {'; '.join(changed)}. Sessions that are open stay open; the new rules apply to "
                "later events only",
                "--accept-changed-assembly",
            )
        )
    return found


def _open(begin: From, topic_id: str) -> str:
    opened = {where.partition: each for where, each in begin.open.items() if where.topic_id == topic_id}
    if not opened:
        return "none is open"
    places = ", ".join(f"partition {p}: since offset {each.safe}" for p, each in opened.items())
    return f"{sum(each.sessions for each in opened.values())} are open, {places}"


def _cut(begin: From, now: Input) -> dict[TopicPartition, tuple[int, int]]:
    """Return the partitions that end below an offset that was ever read: {partition: (end now, end read)}."""
    read = begin.end.max(begin.read)
    return {
        where: (latest, read[where]) for where, latest in now.latest.items() if latest < read.get(where, 0)
    }


def _truncation(cut: Mapping[TopicPartition, tuple[int, int]], now: Input) -> str:
    places = ", ".join(
        f"{now.names[w.topic_id]}/{w.partition}: ends at {end}, was read up to {read}"
        for w, (end, read) in cut.items()
    )
    return (
        f"Kafka has lost the end of the input, or this is another cluster: {places}. The same offsets will name other events. The job "
        "would continue at Kafka's end, with the next revision, so that new outputs cannot be mistaken for those that were sent before"
    )


def _loss(begin: From, lost: Mapping[TopicPartition, tuple[int, int]], now: Input) -> str:
    places = ", ".join(
        f"{now.names[w.topic_id]}/{w.partition}: offsets {a} to {b - 1} ({b - a})"
        for w, (a, b) in lost.items()
    )
    unread = sum(max(0, b - max(a, begin.end[w])) for w, (a, b) in lost.items())
    sessions = sum(begin.open[where].sessions for where in lost if where in begin.open)
    return (
        f"Kafka has deleted input that is still needed: {places}. Up to {sessions} open sessions began there and cannot be completed; "
        f"{unread} records were never read. Continuing takes what is left: nothing is written for what was deleted, the later events of "
        "sessions whose start is gone become dead letters (no_start), and a start that was sent twice may make a shorter session. A longer "
        "retention.ms prevents this"
    )


_FLAGS = {
    "--accept-outbox-behind": "outbox_behind",
    "--accept-new-topic": "new_topic",
    "--accept-truncation": "truncation",
    "--accept-data-loss": "data_loss",
    "--accept-changed-assembly": "changed_assembly",
}
_OF_COMMANDS = ("--accept-data-loss", "--accept-changed-assembly")
"""Flags of a restore and a fork. No flag accepts a truncation or a new topic there: the savepoint's offsets name other events by now."""
# If there are several findings, the generation's row has the reason that comes first here.
_WEIGHT = (
    "savepoint",
    "skip",
    "fork",
    "outbox_behind",
    "truncation",
    "data_loss",
    "new_topic",
    "changed_assembly",
)


def flags_of_commands(found: Sequence[Finding]) -> list[str] | None:
    """Return the flags with which a restore or a fork accepts these findings; None if it has no flag for one of them."""
    flags = _flags(found)
    return flags if all(flag in _OF_COMMANDS for flag in flags) else None


def _flags(found: Sequence[Finding]) -> list[str]:
    return list(dict.fromkeys(finding.flag for finding in found if finding.flag is not None))


def _require(found: Sequence[Finding], accepted: AcceptedRisks, command: str = "") -> None:
    """Raise ContinuityError unless each finding with a flag was accepted. `command`: the command line of a restore or fork; empty for a
    start.
    """
    refused = [f for f in found if f.flag is not None and not getattr(accepted, _FLAGS[f.flag])]
    if refused:
        what = "the request was not carried out" if command else "the job does not start by itself"
        way = f"Repair the cause, or continue as described with: {command or 'spark-job run'} {' '.join(_flags(refused))}"
        if command and flags_of_commands(refused) is None:
            way = "No flag accepts that here; `spark-job run` reports how the outbox itself continues"
        raise ContinuityError(
            f"{what}, and nothing was written. " + ". ".join(finding.text for finding in refused) + f". {way}"
        )
